#!/usr/bin/env python3
"""Compares our tokenizers with the `tokenizers` package, line by line.

Trains a tokenizer of each supported kind on the stamps' captions (Debian: tuxpaint-stamps-default), encodes every
caption line of every language and a list of nasty strings with both, and compares ids and decoded texts. Ends with 1
on any difference. Environment: MSO_BUILD, the build folder with the program `tokenize`.

  tokenizer_reference.py                   compare
  tokenizer_reference.py --speed           also time both on one thread
  tokenizer_reference.py --fixtures DIR    write the small tokenizers and expected ids of the unit tests
"""
import argparse
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# tiktoken's o200k, as GPT-4o's tokenizer.json has it: categories within brackets, possessive quantifiers, \s++$.
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?+[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n/]*|\s++$|\s*[\r\n]|\s+(?!\S)|\s+")


def captions():
    lines = []
    for path in sorted(glob.glob("/usr/share/tuxpaint/stamps/**/*.txt", recursive=True)):
        with open(path, encoding="utf-8", newline="\n") as file:
            lines += file.read().split("\n")
    return [line for line in lines if line]


def byte_level(vocabulary, pattern=None, normalizer=None, add_prefix_space=False, ignore_merges=False, post=None):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pattern:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, True, False)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space, True, True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    return tokenizer, trainer, post


def byte_fallback(vocabulary, metaspace=None):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", metaspace, False)
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, show_progress=False, special_tokens=special, limit_alphabet=600)
    return tokenizer, trainer, "<s>"


def word_counter(pattern):
    """Every word becomes one <unk>: shows where a pattern cuts, which ids alone may hide."""
    tokenizer = Tokenizer(models.BPE(vocab={"<unk>": 0}, merges=[], unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.add_tokens([AddedToken("token", single_word=True), AddedToken("[STRIP]", lstrip=True, rstrip=True)])
    return tokenizer


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
COUNTERS = {"words_gpt2": GPT2, "words_llama3": LLAMA3, "words_qwen2": QWEN2, "words_o200k": O200K,
            "words_classes": r"\w+|[^\w\s]\d|\p{Han}+|[\S&]\p{^L}|\p{Lu}{,2}x"}


def make(name, lines, vocabulary):
    """A trained tokenizer with added tokens of every kind."""
    if name in COUNTERS:
        return word_counter(COUNTERS[name])
    kinds = {
        "gpt2": lambda: byte_level(vocabulary, post="<|endoftext|>"),
        "gpt2_prefix_space": lambda: byte_level(vocabulary, add_prefix_space=True),
        "llama3": lambda: byte_level(vocabulary, LLAMA3, ignore_merges=True, post="<|begin_of_text|>"),
        "qwen2": lambda: byte_level(vocabulary, QWEN2, normalizers.NFC()),
        "o200k": lambda: byte_level(vocabulary, O200K),
        "llama2": lambda: byte_fallback(vocabulary),
        "metaspace_first": lambda: byte_fallback(vocabulary, "first"),
        "metaspace_always": lambda: byte_fallback(vocabulary, "always"),
    }
    tokenizer, trainer, bos = kinds[name]()
    if "meta" in name or name == "llama2":
        # SentencePiece splits at spaces while it trains; the tokenizer that results does not.
        split = pre_tokenizers.Metaspace("\u2581", "always", True)
        keep = tokenizer.normalizer, tokenizer.pre_tokenizer
        tokenizer.normalizer, tokenizer.pre_tokenizer = None, split
        tokenizer.train_from_iterator(lines, trainer)
        state = json.loads(tokenizer.to_str())
        fresh = byte_fallback(vocabulary, {"metaspace_first": "first", "metaspace_always": "always"}.get(name))[0]
        wanted = json.loads(fresh.to_str())
        wanted["model"].update({key: state["model"][key] for key in ("vocab", "merges")})
        # As Llama-2 has it: the bytes are plain vocabulary, three tokens are added ones.
        wanted["added_tokens"] = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                                   "normalized": False, "special": True} for i, token in enumerate(["<unk>", "<s>", "</s>"])]
        tokenizer = Tokenizer.from_str(json.dumps(wanted))
    else:
        tokenizer.train_from_iterator(lines, trainer)
    tokenizer.add_special_tokens([AddedToken("<image>", special=True, normalized=False)])
    if bos:
        tokenizer.add_special_tokens([bos])
    else:
        tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([
        AddedToken("<tool>", normalized=False), AddedToken("<tool>s", normalized=False),
        AddedToken("[STRIP]", lstrip=True, rstrip=True, normalized=False), AddedToken("word", single_word=True, normalized=False),
        AddedToken("\u00e9clair", normalized=True), AddedToken("new token", normalized=True)])
    if bos:
        processor = processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1",
                                                  special_tokens=[(bos, tokenizer.token_to_id(bos))])
        if name == "llama3":
            processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processor])
        tokenizer.post_processor = processor
    return tokenizer


def nasty(lines):
    random.seed(3)
    specials = ["<image>", "<s>", "</s>", "<unk>", "<|im_start|>", "<tool>", "<tool>s", "[STRIP]", "word", "\u00e9clair",
                "e\u0301clair", "new token", "new\u2581token", "<|endoftext|>", "<0x41>", "<0xFF>"]
    odd = ["\U0001f43b", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u200d", "\u200c", "\u180e", "\ufeff", "\ufffd", "\x00", "\x01",
           "\x1f", "\x7f", "\x85", "\xa0", "\u1680", "\u2028", "\u2029", "\u202f", "\u3000", "\u200b", "e\u0301", "\u0301",
           "A\u030a", "\u212b", "\ufb01", "\ud55c", "\u1112\u1161\u11ab", "\u0f71\u0f72\u0f74", "\u017f", "\u212a", "\u0130", "\u24b6",
           "\u0e33", "\u0966", "\u2167", "\u00bd", "\u0660", "\U00010400", "\U0001d7ce", "\U0010ffff", "\ue000", "\u2581", "\u2581\u2581",
           "'s", "'S", "'\u017f", "'ll", "'LL", "'re", "\u2019s", "_", "1234567", "\t", "\r\n", "\n\n", "\r", "\v", "\f", " ", "  ",
           "   ", "\n ", " \n", "<", ">", "|", "a", "B", "\u00e4", "\u0436", "\u4e2d\u6587", "\u0915\u094d\u0937", ".", "...", "-", "\u0120", "\u010a"]
    texts = ["", " ", "  ", "\n", "\r\n", " \n \n  x", "x" + " " * 1000, " " * 1000 + "x", "\n" * 50 + " " * 50 + "\n",
             "a" * 5000, "ab" * 3000, " a" * 2000, "\U0001f43b" * 300, "\u180e" * 5, "a\u180eb \u180e c", "1" * 100, "\u2581" * 100, "'" * 50,
             "<image><image> <image>\n<image>", "<tool>ss<tool>s<tool><image", "<<image>>", "x [STRIP] y[STRIP][STRIP]  z",
             "  [STRIP]  <image>  [STRIP]", "word words sword word,word _word word_ word\u0301 word\u200d", "\u00e9clair e\u0301clair \u00c9clair", "\u0344\u0958\U0001d15e"]
    texts += specials + odd
    for _ in range(3000):
        parts = random.choices(odd, k=random.randint(1, 12)) + random.choices(specials, k=random.randint(0, 4))
        parts += [random.choice(lines)[:random.randint(0, 12)] for _ in range(random.randint(0, 3))]
        random.shuffle(parts)
        texts.append("".join(parts))
    for _ in range(3000):
        texts.append("".join(chr(random.choice([random.randint(0, 0x7f), random.randint(0x80, 0x7ff), random.randint(0x800, 0xd7ff),
                                                random.randint(0xe000, 0xffff), random.randint(0x10000, 0x10ffff)]))
                             for _ in range(random.randint(1, 12))))
    return texts


def escape(text):
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0")


def ours(path, texts, *options):
    program = os.path.join(os.environ.get("MSO_BUILD", "."), "tokenize")
    result = subprocess.run([program, path, *options], input="".join(escape(t) + "\n" for t in texts).encode(),
                            stdout=subprocess.PIPE, check=True)
    return result.stdout.decode().split("\n")[:-1]


def theirs(tokenizer, texts, special, skip):
    out = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=special).ids
        out.append("".join(f"{i} " for i in ids) + "\t" + escape(tokenizer.decode(ids, skip_special_tokens=skip)))
    return out


def differences(tokenizer, path, texts, special, skip):
    options = ["--special"] * special + ["--skip-special"] * skip
    a, b = theirs(tokenizer, texts, special, skip), ours(path, texts, *options)
    assert len(a) == len(b), (len(a), len(b))
    return [(text, x, y) for text, x, y in zip(texts, a, b) if x != y]


def explained_by_unicode_version(text):
    """Code points that the compared programs know from different versions of Unicode."""
    import unicodedata
    return any(unicodedata.category(c) == "Cn" for c in text)  # Python 3.11: Unicode 14, as PCRE2 10.42


def code_points():
    """Each code point between others, to see where classes differ."""
    for c in range(0x110000):
        if not 0xd800 <= c < 0xe000:
            yield f"a{chr(c)}b {chr(c)} 1{chr(c)}2 .{chr(c)}. {chr(c)}token token{chr(c)}[STRIP]{chr(c)}"


def speed(tokenizer, path, texts):
    size = sum(len(t.encode()) for t in texts)
    start = time.time()
    for text in texts:
        tokenizer.encode_batch_fast([text], add_special_tokens=False)
    reference = time.time() - start
    start = time.time()
    tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    batch = time.time() - start
    mine = float(ours(path, texts, "--time")[0])
    return f"tokenizers {size / reference / 1e6:.1f} MB/s a text a call, {size / batch / 1e6:.1f} as a batch; ours {size / mine / 1e6:.1f} MB/s"


def write_fixtures(folder, lines):
    """Small tokenizers, and what the package makes of a few texts with them."""
    os.makedirs(folder, exist_ok=True)
    random.seed(5)
    wanted = ["", " ", "\r\n  x \n", "The 12345 children's BABY'S dogs\u2026", "e\u0301clair \u00e9clair \ufb01 \u212b \u180e",
              "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f43b", "<image>\nA <tool>s [STRIP]  word words<image>", "a\x00b\x7f\t\t c   ",
              "\u2581x\u2581\u2581 y", "\u0915\u094d\u0937 \u4e2d\u6587 \u0e33 \u0130 'LL it\u2019s"] + random.sample(lines, 24)
    expected = {}
    for name in ["gpt2", "llama3", "qwen2", "llama2", "metaspace_first"]:
        tokenizer = make(name, lines, 700 if name != "llama2" else 900)
        state = json.loads(tokenizer.to_str())
        if name == "gpt2":  # the older way to write merges
            state["model"]["merges"] = [" ".join(pair) for pair in state["model"]["merges"]]
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(state, file, ensure_ascii=False, separators=(",", ":"))
            file.write("\n")
        expected[name] = []
        for text in wanted:
            ids = tokenizer.encode(text, add_special_tokens=True).ids
            expected[name].append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                                   "plain": tokenizer.decode(ids, skip_special_tokens=True)})
    with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(expected, file, separators=(",", ":"))
        file.write("\n")
    return 0


def loads_with_transformers(folder, source, config):
    """Whether AutoTokenizer takes the texts that an export writes."""
    try:
        from transformers import AutoTokenizer
    except ImportError:
        print("skipped: transformers is not there to load the export")
        return True
    folder = os.path.join(folder, "export")
    os.makedirs(folder)
    for name, text in (("tokenizer.json", source), ("tokenizer_config.json", config)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("\u00e4<image>").input_ids
    found = (len(tokenizer), tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, ids,
             tokenizer.decode(ids, skip_special_tokens=True))
    expected = (264, 256, 257, 258, [257, 0xc3, 0xa4, 259], "\u00e4")
    print("bytes: loads with AutoTokenizer" if found == expected else f"bytes: AutoTokenizer gives {found}, not {expected}")
    return found == expected


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--all-code-points", action="store_true", help="count code points that are split differently")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--only")
    parser.add_argument("--keep", help="folder for the trained tokenizers")
    parser.add_argument("--fixtures")
    arguments = parser.parse_args()
    lines = captions()
    if not lines:
        print("skipped: no captions; install tuxpaint-stamps-default")
        return 77
    if arguments.fixtures:
        return write_fixtures(arguments.fixtures, lines)
    texts = nasty(lines)
    failed = False
    names = ["gpt2", "gpt2_prefix_space", "llama3", "qwen2", "o200k", "llama2", "metaspace_first", "metaspace_always",
             *COUNTERS]
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or temporary
        os.makedirs(folder, exist_ok=True)
        for name in [arguments.only] if arguments.only else names + ["bytes"]:
            path = os.path.join(folder, name + ".json")
            if name == "bytes":
                dump = subprocess.run([os.path.join(os.environ.get("MSO_BUILD", "."), "tokenize"), "bytes", "--dump"],
                                      stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")
                tokenizer, where = Tokenizer.from_str(dump[0]), "bytes"
                failed |= not loads_with_transformers(temporary, *dump)
            else:
                if not os.path.exists(path):
                    make(name, lines, arguments.vocabulary).save(path)
                tokenizer, where = Tokenizer.from_file(path), path
            wrong = differences(tokenizer, where, lines, special=True, skip=True)
            odd = differences(tokenizer, where, texts, special=False, skip=False)
            odd += differences(tokenizer, where, texts, special=True, skip=True)
            new = [d for d in odd if explained_by_unicode_version(d[0])]
            print(f"{name}: {len(lines) - len(wrong)} of {len(lines)} caption lines equal, "
                  f"{2 * len(texts) - len(odd)} of {2 * len(texts)} nasty strings"
                  + (f" ({len(new)} of the others hold code points that are unassigned in Unicode 14)" if odd else ""), flush=True)
            for text, a, b in (wrong + [d for d in odd if d not in new])[:10]:
                print(f"  {text[:200]!r}\n    tokenizers {a[:300]}\n    ours       {b[:300]}")
            failed |= bool(wrong) or len(new) != len(odd)
            if arguments.all_code_points:
                different = differences(tokenizer, where, list(code_points()), special=False, skip=False)
                points = [d[0][1] for d in different]
                new = [c for c in points if explained_by_unicode_version(c)]
                print(f"  code points treated differently: {len(points)}, unassigned in Unicode 14: {len(new)}",
                      [hex(ord(c)) for c in points if c not in set(new)][:20])
            if arguments.speed:
                print(" ", speed(tokenizer, where, lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
