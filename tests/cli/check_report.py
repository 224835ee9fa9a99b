#!/usr/bin/env python3
"""Checks a report.html against an own reading of its run's metrics.jsonl: check_report.py RUN_DIR [KIND].

The page must be well-formed (every tag closed, each SVG good XML), self-contained, free of markup from the run's
texts, small, and show the numbers that follow from the file.
"""
import json
import re
import sys
import xml.etree.ElementTree
from html.parser import HTMLParser

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.tags, self.data = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]} at {self.getpos()}"
        self.open.pop()

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.data.append(data)


def number(value):
    return float(value) if isinstance(value, (int, float)) or value in ("nan", "inf", "-inf") else float("nan")


def main():
    folder = sys.argv[1]
    html = open(folder + "/report.html", encoding="utf-8").read()
    page = Page()
    page.feed(html)
    page.close()
    assert not page.open, page.open
    for svg in re.findall(r"<svg class=\"chart\".*?</svg>", html, re.S):
        tree = xml.etree.ElementTree.fromstring(svg)
        for path in tree.iter("path"):
            assert "nan" not in path.get("d") and "inf" not in path.get("d")
            assert path.get("d").count("L") + path.get("d").count("M") <= 2100
    for data in re.findall(r'<script type="application/json">(.*?)</script>', html, re.S):
        for curve in json.loads(data):
            assert len(curve["x"]) == len(curve["y"]) == len(curve["s"]) == len(curve["v"]) <= 2000
            assert curve["x"] == sorted(curve["x"])
    for tag, attrs in page.tags:
        assert not (set(attrs) & {"src", "href", "onload", "onerror", "onclick"}), (tag, attrs)
        assert tag not in ("link", "img", "iframe", "object", "b"), tag
    assert sum(tag == "script" and "type" not in a for tag, a in page.tags) == 1
    assert len(html) < 1_000_000, len(html)

    first, repeated = {}, 0
    for line in open(folder + "/metrics.jsonl", encoding="utf-8"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record.get("type") == "step":
            if record["step"] in first:
                repeated += 1
            else:
                first[record["step"]] = number(record.get("loss"))
    tiles = re.findall(r'<dl class="tile"><dt>(.*?)</dt><dd class="big[^"]*">(.*?)</dd><dd class="more">(.*?)</dd>', html)
    tiles = {name: (re.sub("<.*?>", "", big), re.sub("<.*?>", "", more)) for name, big, more in tiles}
    assert len(tiles) == 8, tiles
    assert tiles["Steps"][0].split(" ")[0] == f"{max(first, default=0):,}", tiles["Steps"]
    finite = [v for _, v in sorted(first.items()) if abs(v) < float("inf")]
    if finite:
        n = max(1, min(10, len(first) // 20))
        mean = sum(finite[-n:]) / len(finite[-n:])
        assert abs(float(tiles["Loss"][0]) - mean) < 6e-4, (tiles["Loss"], mean)
    if repeated and "differ" not in tiles["Recoveries"][1]:
        assert f"{repeated:,} step" in tiles["Recoveries"][1], tiles["Recoveries"]
    print("ok", folder, len(html), "bytes")


if __name__ == "__main__":
    main()
