#!/usr/bin/env python3
"""Compares our reading of SentencePiece models and of CLIP's files with transformers 4.57's slow tokenizers and with CLIPTokenizer.

Trains small models (BPE with byte fallback as Llama has it, unigram as T5 has it) on the stamps' captions (Debian:
tuxpaint-stamps-default), and compares ids on caption lines of all languages and on nasty strings: legacy and not, with
added tokens of every kind. transformers 5 has no slow LlamaTokenizer any more, so the script goes on with the interpreter of
.deps/tests-transformers4 (or MSO_PYTHON4) beside the one it runs under. MSO_BUILD: the build folder with `tokenize`.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import transformers

if transformers.__version__.startswith("5"):
    old = os.environ.get("MSO_PYTHON4") or os.path.join(os.path.dirname(sys.executable), "..", "..", "tests-transformers4", "bin", "python")
    if not os.path.exists(old):
        print("skipped: no Python with transformers 4.57")
        sys.exit(77)
    os.execv(old, [old, *sys.argv])

import sentencepiece
from transformers import AddedToken, CLIPTokenizerFast
from transformers.models.llama.tokenization_llama import LlamaTokenizer
from transformers.models.t5.tokenization_t5 import T5Tokenizer

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tokenizer_reference as reference
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

ADDED = [AddedToken("<image>", special=True), AddedToken("<tool>", special=False), AddedToken("[STRIP]", lstrip=True, rstrip=True, special=False),
         AddedToken("<|im_start|>", special=True)]


def nasty(lines):
    # Python 3.11 and SentencePiece differ from each other only in what is unassigned; U+0000 ends a text of SentencePiece's.
    texts = [t for t in reference.nasty(lines) if "\0" not in t]
    random.seed(9)
    return random.sample(texts, 1500) + ["\u2581", " \u2581 x", "<s> a</s>", "  a", "a  ", "<unk>", " <image> b", "<image>b <image>", "x<image>  <tool>  y", "\n<image>\n"]


def ours(where, texts, *options):
    run = subprocess.run([os.path.join(os.environ.get("MSO_BUILD", "."), "tokenize"), where, *options],
                         input="".join(reference.escape(t) + "\n" for t in texts).encode(), stdout=subprocess.PIPE, check=True)
    return [[int(i) for i in line.split("\t")[0].split()] for line in run.stdout.decode().split("\n")[:-1]]


def compare(name, tokenizer, texts, special):
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        if os.path.exists(os.path.join(folder, "tokenizer.json")) and name.startswith("clip files"):
            os.remove(os.path.join(folder, "tokenizer.json"))
        mine = ours(folder, texts, *["--special"] * special)
    wrong = []
    for text, ids in zip(texts, mine):
        expected = tokenizer(text, add_special_tokens=special).input_ids
        if ids != expected and not reference.explained_by_unicode_version(text):
            wrong.append((text, expected, ids))
    print(f"{name}{', special tokens' if special else ''}: {len(texts) - len(wrong)} of {len(texts)} texts equal", flush=True)
    for text, expected, ids in wrong[:4]:
        print(f"  {text[:150]!r}\n    theirs {expected[:60]}\n    ours   {ids[:60]}")
    return len(wrong) + (len(mine) != len(texts))


def write_fixtures(folder, lines):
    """A small model, and what LlamaTokenizer makes of a few texts with it."""
    random.seed(2)
    with tempfile.TemporaryDirectory() as temporary:
        corpus = os.path.join(temporary, "corpus")
        with open(corpus, "w", encoding="utf-8") as file:
            file.write("\n".join(random.sample([line for line in lines if line.isascii()], 3000)) + "\n")
        sentencepiece.SentencePieceTrainer.train(input=corpus, model_prefix=os.path.join(temporary, "m"), model_type="bpe", vocab_size=420, byte_fallback=True,
                                                 character_coverage=1.0, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2)
        with open(os.path.join(temporary, "m.model"), "rb") as file, open(os.path.join(folder, "sentencepiece.model"), "wb") as out:
            out.write(file.read())
    texts = ["", " ", "Hello world", "  two  spaces ", "<s> a</s>b", "<image>\nA cat <image>", "x [STRIP]  y", "\u2581x", "\U0001f43b \u4e2d", "a\n\nb", " <image>"]
    expected = []
    for legacy in (True, False):
        tokenizer = LlamaTokenizer(os.path.join(folder, "sentencepiece.model"), legacy=legacy)
        tokenizer.add_tokens(ADDED)
        with tempfile.TemporaryDirectory() as temporary:
            tokenizer.save_pretrained(temporary)
            with open(os.path.join(temporary, "tokenizer_config.json"), encoding="utf-8") as file:
                config = json.load(file)
        expected.append({"config": config, "cases": [{"text": t, "ids": tokenizer(t).input_ids} for t in texts]})
    with open(os.path.join(folder, "sentencepiece.json"), "w", encoding="utf-8") as file:
        json.dump(expected, file, separators=(",", ":"))
        file.write("\n")
    return 0


def main():
    lines = reference.captions()
    if not lines:
        print("skipped: no captions; install tuxpaint-stamps-default")
        return 77
    if len(sys.argv) == 3 and sys.argv[1] == "--fixtures":
        return write_fixtures(sys.argv[2], lines)
    texts, wrong = nasty(lines), 0
    random.seed(1)
    some = random.sample(lines, 6000)
    with tempfile.TemporaryDirectory() as folder:
        corpus = os.path.join(folder, "corpus")
        with open(corpus, "w", encoding="utf-8") as file:
            file.write("\n".join(some) + "\n")
        common = {"input": corpus, "minloglevel": 2, "num_threads": 1}
        sentencepiece.SentencePieceTrainer.train(model_prefix=os.path.join(folder, "llama"), model_type="bpe", vocab_size=1500, byte_fallback=True,
                                                 character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False,
                                                 split_digits=True, **common)
        sentencepiece.SentencePieceTrainer.train(model_prefix=os.path.join(folder, "t5"), model_type="unigram", vocab_size=1500, character_coverage=0.98,
                                                 pad_id=0, eos_id=1, unk_id=2, bos_id=-1, **common)
        for legacy in (True, False):
            llama = LlamaTokenizer(os.path.join(folder, "llama.model"), legacy=legacy)
            llama.add_tokens(ADDED)
            wrong += compare(f"llama, legacy {legacy}", llama, lines[::9], False) + compare(f"llama, legacy {legacy}", llama, texts, True)
            t5 = T5Tokenizer(os.path.join(folder, "t5.model"), legacy=legacy)
            wrong += compare(f"t5, legacy {legacy}", t5, lines[::9], True) + compare(f"t5, legacy {legacy}", t5, texts, False)
        plain = LlamaTokenizer(os.path.join(folder, "llama.model"), legacy=False, add_prefix_space=False, add_eos_token=True)
        wrong += compare("llama without prefix", plain, texts, True)
        # CLIP: a vocabulary of its kind, trained with the tokenizer's own rules.
        core = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
        core.pre_tokenizer = pre_tokenizers.ByteLevel(False)
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        core.train_from_iterator([line.lower() for line in some], trainers.BpeTrainer(vocab_size=1500, show_progress=False, end_of_word_suffix="</w>",
                                                                                      initial_alphabet=alphabet))
        state = json.loads(core.to_str())["model"]
        vocab = {token: i for i, token in enumerate(alphabet)}
        for token in [letter + "</w>" for letter in alphabet] + sorted(state["vocab"], key=state["vocab"].get):
            vocab.setdefault(token, len(vocab))
        merges = [m if isinstance(m, str) else " ".join(m) for m in state["merges"]]
        for token in ("<|startoftext|>", "<|endoftext|>"):
            vocab[token] = len(vocab)
        clip_folder = os.path.join(folder, "clip")
        os.mkdir(clip_folder)
        with open(os.path.join(clip_folder, "vocab.json"), "w", encoding="utf-8") as file:
            json.dump(vocab, file)
        with open(os.path.join(clip_folder, "merges.txt"), "w", encoding="utf-8") as file:
            file.write("#version: 0.2\n" + "\n".join(merges) + "\n")
        clip = CLIPTokenizerFast(os.path.join(clip_folder, "vocab.json"), os.path.join(clip_folder, "merges.txt"))
        wrong += compare("clip tokenizer.json", clip, lines[::2], True) + compare("clip tokenizer.json", clip, texts, False)
        wrong += compare("clip files", clip, texts, True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
