// Style sheet and script of the report, put into the page as they are. Colours: told apart also with
// deuteranopia and by shape or place, 4.5:1 against their ground in both themes.
#pragma once

namespace mso {

inline constexpr const char* kReportStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #f6f7f8; --card: #fff; --ink: #1b1f24; --soft: #59636e; --rule: #e2e5e9; --grid: #eceef1; --band: #f3f5f8;
  --blue: #1763c6; --blue-pale: #a9c8f0; --orange: #b4540a; --orange-pale: #f8ddc0; --green: #187a45; --red: #c3272f;
  --violet: #7645c9; --teal: #0b7a80; --grey: #8a939d; --train: #4a86d8; --wait: #e08a2e; --stall: #8d5fd3;
  --again: #d9a400; --down: #cc4b50; --other: #a3abb4;
}
@media (prefers-color-scheme: dark) { :root {
  --page: #0f1215; --card: #171b20; --ink: #e7eaee; --soft: #9aa5b1; --rule: #2b3138; --grid: #242a30; --band: #1c2127;
  --blue: #6cabff; --blue-pale: #2f5a91; --orange: #ffa050; --orange-pale: #4d3216; --green: #4fc988; --red: #ff7b7b;
  --violet: #b89aff; --teal: #4fc4ca; --grey: #7f8994; --train: #4f8fe6; --wait: #e59a45; --stall: #a581e8;
  --again: #dcb23a; --down: #e0666a; --other: #6b7580;
} }
@media print { :root {
  color-scheme: light;
  --page: #fff; --card: #fff; --ink: #111; --soft: #444; --rule: #ccc; --grid: #e6e6e6; --band: #f3f5f8;
  --blue: #1763c6; --blue-pale: #a9c8f0; --orange: #b4540a; --orange-pale: #f8ddc0; --green: #187a45; --red: #c3272f;
  --violet: #7645c9; --teal: #0b7a80; --grey: #777; --train: #4a86d8; --wait: #e08a2e; --stall: #8d5fd3;
  --again: #d9a400; --down: #cc4b50; --other: #a3abb4;
} }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Noto Sans",
  "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 24px 48px; }
header { display: flex; align-items: flex-start; gap: 16px; flex-wrap: wrap; margin-bottom: 20px; }
header > div { flex: 1 1 480px; }
h1 { font-size: 25px; line-height: 1.2; margin: 0 0 4px; letter-spacing: -.01em; overflow-wrap: anywhere; }
h2 { font-size: 16px; margin: 0 0 2px; }
.sub, .note { color: var(--soft); font-size: 13.5px; margin: 0; overflow-wrap: anywhere; }
.badge { display: inline-flex; align-items: center; gap: 8px; font-weight: 600; padding: 6px 14px; border-radius: 99px;
  border: 1.5px solid currentColor; white-space: nowrap; }
.badge::before { content: attr(data-sign); }
.good { color: var(--green); } .bad { color: var(--red); } .busy { color: var(--blue); } .warn { color: var(--orange); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(245px, 1fr)); gap: 12px; margin-bottom: 14px; }
.tile, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
.tile { margin: 0; padding: 12px 16px 11px; min-width: 0; }
.tile dt { color: var(--soft); font-size: 13px; margin: 0; }
.tile dd { margin: 0; }
.tile .big { font-size: 25px; font-weight: 650; line-height: 1.25; letter-spacing: -.01em; }
.tile .big small { font-size: 14px; font-weight: 500; color: var(--soft); letter-spacing: 0; }
.tile .more { font-size: 13px; color: var(--soft); overflow-wrap: anywhere; }
.card { padding: 16px 18px 12px; margin-bottom: 14px; break-inside: avoid; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 14px; }
@media (max-width: 600px) { .tiles { grid-template-columns: 1fr 1fr; gap: 8px; } .tile .big { font-size: 21px; } }
@media (max-width: 820px) { .pair { grid-template-columns: 1fr; gap: 0; } main { padding: 16px 10px; } }
.head { display: flex; flex-wrap: wrap; align-items: baseline; justify-content: space-between; gap: 2px 20px; margin-bottom: 6px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 13px; color: var(--soft); margin: 0; padding: 0; list-style: none; }
.legend svg { vertical-align: -2px; margin-right: 6px; }
.scroll { overflow-x: auto; position: relative; }
.chart { display: block; width: 100%; min-width: 560px; height: auto; font-size: 12px; }
.pair .chart { min-width: 360px; }
.chart text { fill: var(--soft); }
.chart .strong { fill: var(--ink); font-weight: 600; }
.grid { stroke: var(--grid); } .axis { stroke: var(--rule); }
.raw { fill: none; stroke: var(--blue-pale); stroke-width: 1.1; stroke-linejoin: round; }
.line { fill: none; stroke: var(--blue); stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.thin { stroke-width: 1.5; }
.area { fill: var(--wait); fill-opacity: .35; stroke: none; }
.wait { stroke: var(--orange); }
.again { fill: none; stroke: var(--orange); stroke-width: 1.5; }
.evalmark { fill: var(--card); stroke: var(--violet); stroke-width: 2; } .evalline { fill: none; stroke: var(--violet); stroke-dasharray: 2 3; }
.lostband { fill: var(--orange-pale); fill-opacity: .55; }
.kill { stroke: var(--red); stroke-width: 1.2; } .resume { stroke: var(--green); stroke-width: 1.2; stroke-dasharray: 4 3; }
.many { opacity: .35; } .point { fill: var(--blue); }
.killsign { stroke: var(--red); stroke-width: 2; fill: none; stroke-linecap: round; } .resumesign { fill: var(--green); }
.nan { fill: var(--red); }
.odd { fill: var(--band); }
.break { fill: url(#hatch); } .hatch { stroke: var(--grey); stroke-width: 1; opacity: .6; }
.attempt { fill: var(--train); } .catchup { fill: var(--again); } .attempt-label { fill: #fff !important; font-weight: 600; font-size: 11px; }
.l0 { fill: var(--teal); } .l1 { fill: var(--blue); } .l2 { fill: var(--violet); } .lx { fill: var(--grey); }
.degraded { fill: var(--orange); } .failed { fill: var(--red); }
.inc { fill: var(--orange); stroke: var(--card); stroke-width: 1; } .inc.bad { fill: var(--red); } .inc.good { fill: var(--green); } .inc.calm { fill: var(--grey); }
.share { display: flex; height: 22px; border-radius: 5px; overflow: hidden; gap: 1.5px; margin: 8px 0; }
.share i { min-width: 2px; }
.key { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; vertical-align: -1px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 12.5px; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
th.n, td.n { text-align: right; white-space: nowrap; }
td.w { overflow-wrap: anywhere; min-width: 200px; } .nw { white-space: nowrap; }
code, .mono { font-family: ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; font-size: 12.5px; }
.config { columns: 2; column-gap: 34px; font-size: 13px; margin: 8px 0 4px; }
@media (max-width: 820px) { .config { columns: 1; } }
.config div { break-inside: avoid; display: flex; gap: 12px; justify-content: space-between; border-bottom: 1px solid var(--grid); padding: 2px 0; }
.config div.section { border: 0; font-weight: 600; padding-top: 9px; }
.config dt { color: var(--soft); } .config dd { margin: 0; text-align: right; overflow-wrap: anywhere; }
summary { cursor: pointer; font-weight: 600; } summary .note { font-weight: 400; }
.alert { border-left: 4px solid var(--orange); padding: 8px 14px; background: var(--card); border-radius: 4px; margin: 0 0 14px; overflow-wrap: anywhere; }
.alert.bad { border-color: var(--red); color: inherit; }
footer { color: var(--soft); font-size: 12.5px; margin-top: 22px; }
#tip { position: fixed; pointer-events: none; display: none; background: var(--ink); color: var(--page); font-size: 12.5px;
  line-height: 1.4; padding: 5px 9px; border-radius: 6px; z-index: 9; white-space: pre-line; max-width: 340px; }
.cross { stroke: var(--soft); stroke-width: 1; pointer-events: none; } .dot { fill: var(--ink); stroke: var(--card); stroke-width: 1.5; pointer-events: none; }
@media print { .tiles { grid-template-columns: repeat(4, 1fr); } .pair { grid-template-columns: 1fr 1fr; gap: 14px; } .pair .chart { min-width: 0; }
  .tile { padding: 8px 10px; } .tile .big { font-size: 19px; } .tile .more { font-size: 11px; } .card, .tile { border-color: #bbb; } main { max-width: none; padding: 0; } .chart { min-width: 0; } .scroll { overflow: visible; } }
)css";

// Hover: the nearest point of each curve (data in the JSON beside the chart), and the texts of marks. Without
// the script the page shows everything but these, with the browser's own tooltips on marks.
inline constexpr const char* kReportScript = R"js(
(() => {
  const tip = document.getElementById('tip'), ns = 'http://www.w3.org/2000/svg';
  const show = (text, e) => {
    tip.textContent = text; tip.style.display = 'block';
    const w = tip.offsetWidth, h = tip.offsetHeight;
    tip.style.left = Math.max(4, Math.min(e.clientX + 14, innerWidth - w - 8)) + 'px';
    tip.style.top = (e.clientY + h + 26 > innerHeight ? e.clientY - h - 12 : e.clientY + 16) + 'px';
  };
  const hide = () => { tip.style.display = 'none'; };
  const nearest = (xs, x) => {
    let a = 0, b = xs.length - 1;
    while (b - a > 1) { const m = (a + b) >> 1; if (xs[m] < x) a = m; else b = m; }
    return Math.abs(xs[b] - x) < Math.abs(xs[a] - x) ? b : a;
  };
  for (const svg of document.querySelectorAll('svg.chart')) {
    const json = svg.parentNode.querySelector('script[type="application/json"]');
    const curves = json ? JSON.parse(json.textContent) : [];
    const group = svg.appendChild(document.createElementNS(ns, 'g'));
    svg.querySelectorAll('title').forEach(t => { if (t.parentNode !== svg) { t.parentNode.dataset.tip = t.textContent; t.remove(); } });
    svg.addEventListener('pointermove', e => {
      const box = svg.viewBox.baseVal, rect = svg.getBoundingClientRect();
      const x = (e.clientX - rect.left) * box.width / rect.width;
      const mark = e.target.closest('[data-tip]');
      const lines = mark ? [mark.dataset.tip] : [];
      let out = '', first = true;
      if (!mark) for (const c of curves) {
        if (!c.x.length) continue;
        const i = nearest(c.x, x);
        if (Math.abs(c.x[i] - x) > 24) continue;
        if (first) { lines.push('step ' + c.s[i].toLocaleString('en') + (c.t ? ' · ' + c.t[i] : '')); out += `<line class="cross" x1="${c.x[i]}" x2="${c.x[i]}" y1="${c.top}" y2="${c.bottom}"/>`; first = false; }
        lines.push(c.name + ' ' + c.v[i] + (c.unit || ''));
        out += `<circle class="dot" r="3.5" cx="${c.x[i]}" cy="${c.y[i]}"/>`;
      }
      group.innerHTML = out;
      if (lines.length) show(lines.join('\n'), e); else hide();
    });
    svg.addEventListener('pointerleave', () => { group.innerHTML = ''; hide(); });
  }
  addEventListener('beforeprint', () => document.querySelectorAll('details').forEach(d => { d.open = true; }));
})();
)js";

}  // namespace mso
