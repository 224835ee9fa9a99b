#!/usr/bin/env python3
"""Compares our Jinja interpreter, chat templates and assistant masks with jinja2 and transformers.

1. Expressions and statements, one by one, against jinja2 as transformers sets it up.
2. Templates in the style of the published ones × random conversations: text and ids against apply_chat_template, labels
   against return_assistant_tokens_mask where the template has {% generation %}, else against a computation of its own from
   the definition in io/conversation_encoder.h.
3. With pictures in and bos in front: ids against LlavaProcessor.apply_chat_template.
Ends with 1 on any difference. Environment: MSO_BUILD, the build folder with the program `encode_chat`.
"""
import datetime
import json
import os
import random
import subprocess
import sys
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import jinja2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 3, 14, 12)


chat_template_utils.datetime = FixedDate  # strftime_now

# ---- 1. the language ----

# Expressions over the variables below; what fails in jinja2 has to fail here.
VARIABLES = {
    "t": "Hällo  Wörld, it's\tßtraße\n", "e": "", "n": 7, "m": -3, "f": 2.5, "z": 0, "b": True, "none_": None,
    "l": [3, 1, 2, "x", None, 1.5], "k": [5, 2, 9, 2], "d": {"a": 1, "B": [1, 2], "c": {"x": "y"}, "items_": 3},
    "w": ["one", "Two", "three"],
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [{"type": "text", "text": "A"}, {"type": "image"}]},
                 {"role": "user", "content": "<|x|> ü", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1.0, "b": [True, None]}}}]}],
}
EXPRESSIONS = """
1 + 2 * 3 - 4 // 3 ;; 7 % 3 ;; -7 % 3 ;; -7 // 2 ;; 7 % -3 ;; 7.5 % 2 ;; -7.5 // 2 ;; 2 ** 10 ;; 2 ** -1 ;; -2 ** 2 ;; 2 ** 3 ** 2 ;; 1 / 3 ;; 4 / 2
1e3 ;; 1_000 ;; 0.1 + 0.2 ;; 1e16 ;; 1e-5 ;; 123456789.125 ;; 1.5e300 ;; 1 == 1.0 ;; true == 1 ;; 1 < 2 < 3 ;; 1 < 2 > 5 ;; 3 >= 3 ;; "a" < "b" ;; "a" < 1
t ;; t|length ;; t.strip() ;; t.upper() ;; t.lower() ;; t.title() ;; t|title ;; t|capitalize ;; t.swapcase() ;; t.split() ;; t.split(" ") ;; t.split(None, 1) ;; t.rsplit("l", 1)
t[0] ;; t[-2] ;; t[100] ;; t[1:4] ;; t[::-1] ;; t[-3:] ;; t[:2] ;; t[5:2] ;; t[::2] ;; t[-100:3] ;; t[3:-100:-1] ;; l[1:3] ;; l[::-1] ;; l[-1] ;; l[9] ;; k[1:][0]
"x" ~ 1 ~ none ~ 1.0 ~ true ;; "a" "b" ;; 'it''s' ;; "a\\n\\t\\u00e4\\x41\\101\\q" ;; "%s is %d and %.2f" % ("a", 3, 1.5) ;; "%5s|%-5s|%05d|%x" % ("a", "b", 42, 255) ;; "%s" % "x" ;; "%d%%" % 5
"ab" * 3 ;; [1] * 2 ;; [1, 2] + [3] ;; (1, 2) + (3,) ;; "a" + 1 ;; 1 + "a" ;; [1] + (2,) ;; "a" in "abc" ;; 1 in [1, 2] ;; "a" in d ;; "q" not in d ;; 1 in "abc" ;; none in l
d.a ;; d["a"] ;; d.q ;; d.q.r ;; d["q"] is defined ;; d.get("a") ;; d.get("q", 5) ;; d.get("q") ;; d.items()|list ;; d.keys()|list ;; d.values()|list ;; d|items|list ;; d.c.x ;; d["c"]["x"]
undefined_ ;; undefined_ is defined ;; undefined_|default("x") ;; undefined_ or "y" ;; undefined_ == none ;; undefined_ + 1 ;; undefined_|length ;; undefined_ ~ "x" ;; not undefined_ ;; undefined_()
none_ ;; none_ is none ;; none_|default("x") ;; none_|default("x", true) ;; e|default("x", true) ;; n is number ;; n is integer ;; f is float ;; b is boolean ;; b is integer ;; t is string ;; d is mapping ;; l is sequence ;; l is iterable ;; n is iterable ;; n is odd ;; n is even ;; n is divisibleby 7 ;; n is divisibleby(2) ;; n is eq 7 ;; n is gt 3 and n is lt(9) ;; "a" is in "abc" ;; b is true ;; z is false ;; t is not none
"x" if n > 3 else "y" ;; "x" if z ;; ("x" if z else "y") ~ "z" ;; z and undefined_.x ;; n or undefined_.x ;; not z and not e ;; (1, 2) ;; (1,) ;; () ;; [] ;; {} ;; {"a": [1, {"b": none}]} ;; [1, "a'b", 'c"d', "e\\n", 1.0, true, none]
d|tojson ;; messages|tojson ;; messages|tojson(indent=2) ;; t|tojson ;; "é\\u2028<>&'"|tojson ;; [1.0, 1e20, none, true]|tojson ;; {"b": 1, "a": 2}|tojson(sort_keys=true) ;; undefined_|tojson ;; [] |tojson(indent=4) ;; {"a": [], "b": {}}|tojson(indent=1) ;; {"a": 1}|tojson(separators=(",", ":"))
w|join(", ") ;; w|first ;; w|last ;; w|reverse|list ;; w|sort ;; w|sort(reverse=true) ;; w|sort(case_sensitive=true) ;; k|sort ;; k|unique|list ;; k|sum ;; k|max ;; k|min ;; w|map("upper")|list ;; w|map("length")|join("-") ;; messages|map(attribute="role")|list ;; messages|selectattr("role", "equalto", "user")|list|length ;; messages|rejectattr("role", "eq", "user")|map(attribute="role")|join ;; k|select("odd")|list ;; k|reject("odd")|list ;; l|select|list ;; messages|selectattr("tool_calls")|list|length ;; messages|selectattr("tool_calls", "defined")|map(attribute="content")|first ;; messages|map(attribute="content.0.text")|list
[]|first ;; []|last ;; []|max ;; w|batch(2)|list ;; w|batch(2, "-")|map("join")|list ;; d|dictsort ;; messages|groupby("role")|length ;; w|length ;; w|count ;; d|length ;; n|length ;; n|string ;; "12"|int ;; " 12 "|int ;; "x"|int ;; "x"|int(5) ;; "3.7"|int ;; "3.7"|float ;; f|int ;; "ff"|int(0, 16) ;; 2.5|round ;; 3.5|round ;; 2.345|round(2) ;; 42|round ;; 2.1|round(0, "ceil") ;; m|abs
t|trim ;; "xxaxx"|trim("x") ;; "xxaxx".strip("x") ;; "aXbX".replace("X", "-") ;; "aXbX"|replace("X", "-", 1) ;; "aXbX".replace("X", "-", 1) ;; "abc".replace("", "-") ;; "a\\nb\\n\\nc"|indent ;; "a\\nb"|indent(2, true) ;; "a\\nb\\r\\nc".splitlines() ;; "a b c d e f g h"|truncate(9) ;; "a b c d e f g h i j k l"|truncate(9, true, "..", 0) ;; t|wordcount ;; "abc"|center(9) ;; "a-b".partition("-") ;; "abc".find("c") ;; "abc".find("z") ;; "abcabc".rfind("c") ;; "abc".index("z") ;; "äbcä".count("ä") ;; "abc".startswith("a") ;; "abc".startswith(("x", "a")) ;; "abc".endswith("bc") ;; "x".join(["a", "b"]) ;; "-".join([1]) ;; "{} {}".format(1, "b") ;; "{a}".format(a=3)
"12".isdigit() ;; "1a".isalnum() ;; "ab".isalpha() ;; " ".isspace() ;; "Ab".isupper() ;; "AB".isupper() ;; "abc".removeprefix("a") ;; "7".zfill(3) ;; "abc".rjust(5) ;; "abc".center(6, "*") ;; "ΑΣ".lower() ;; "ß".upper()
range(3)|list ;; range(2, 8, 3)|list ;; range(3, 0, -1)|list ;; range(0)|list ;; range(1000000)|list|length ;; dict(a=1) ;; namespace(a=1).a ;; [1, 2].append(3) ;; d.pop("a") ;; d.__class__ ;; t.__class__ ;; messages[0].role ;; messages[-1]["tool_calls"][0].function.arguments|tojson ;; messages[1].content[0]["type"] ;; messages[0].content.type is defined ;; messages[5] is defined ;; messages[5].role ;; raise_exception("no") ;; nosuch() ;; t|nosuch ;; t is nosuch ;; loop ;; {"a": 1}.a ;; {"a": 1}["a"] ;; n.x ;; n.x is defined ;; 5 is sameas 5 ;; none is sameas none ;; [1,[2,[3]]][1][1][0] ;; l|list is sameas l ;; "a,b"|list ;; (k|map("string"))|list ;; strftime_now("%d %b %Y %j %A")
"""
BODIES = [
    "{% for x in k %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}-{{ loop.nextitem }} {% endfor %}",
    "{% for x in [] %}a{% else %}none{% endfor %}{% for x in k if x > 2 %}{{ x }}/{{ loop.length }} {% else %}b{% endfor %}",
    "{% for a, b in d.items() %}{{ a }}={{ b }};{% endfor %}{% for key in d %}{{ key }}{% endfor %}{% for c in 'äb' %}[{{ c }}]{% endfor %}",
    "{% set x = 1 %}{% for i in k %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% set ns = namespace(x=0, seen=[]) %}{% for i in k %}{% set ns.x = ns.x + i %}{% set ns.seen = ns.seen + [i] %}{% endfor %}{{ ns.x }}{{ ns.seen }}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% macro m(a, b='x', c=none) %}<{{ a }}{{ b }}{{ c }}{% if caller %}{{ caller() }}{% endif %}>{% endmacro %}{{ m(1) }}{{ m(1, 2, c=3) }}{{ m(b=5) }}{% call m(9) %}body{{ n }}{% endcall %}",
    "{% macro v(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ v(1, 2, 3, q=4) }}",
    "{% macro v(a) %}{{ a }}{% endmacro %}{{ v(1, 2) }}",
    "{% macro r(x) %}{% if x > 0 %}{{ x }}{{ r(x - 1) }}{% endif %}{% endmacro %}{{ r(5) }}",
    "{% macro forever(x) %}{{ forever(x) }}{% endmacro %}{{ forever(1) }}",
    "{% set a %}in {{ n }}{% endset %}[{{ a }}]{% set b | upper | trim %} x {% endset %}[{{ b }}]{% set p, q = 1, 2 %}{{ p }}{{ q }}",
    "{% filter upper %}abc {{ w|join }}{% endfilter %}{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}",
    "  {% if n == 7 %}\n  yes\n  {% elif n %}\n  no\n  {% else %}\n  x\n  {% endif %}\n  end\n\n",
    "a  {%- if b -%}  b  {%- endif -%}  c\n{%+ if b %} d {% endif +%}\n e {{- 1 -}} f {# comment #}\n g {#- x -#} h\n",
    "x\n   {% set y = 1 %}   \n  z {% if b %} q {% endif %}\n\n  {# c #}\n  w",
    "{% raw %}{{ not }} {% this %}{% endraw %}{% raw -%}  x  {%- endraw %}y",
    "{{ '}}' }}{{ '%}' }}{{ {'a': {'b': 1}} }}{{ {'a': {'b': 1}}['a']['b'] }}",
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% else %}{% set loop_messages = messages %}{% endif %}{{ loop_messages|length }}",
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('odd') }}{% endif %}{{ message.role }}{% endfor %}",
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{{ c.type }}{% endfor %}{% endif %}|{% endfor %}",
    "{% for m in messages %}{{ loop.changed(m.role) }}{{ loop.cycle('a', 'b') }}{% for c in m.role %}{{ loop.depth }}{% endfor %}{% endfor %}",
    "{% set ns = namespace(found=false) %}{% for m in messages[::-1] %}{% if not ns.found and m.role == 'user' %}{% set ns.found = true %}{{ loop.index0 }}{% endif %}{% endfor %}{{ ns.found }}",
    "{% set g = w|map('upper') %}{{ g|list }}{{ g|list }}{% if k|select('gt', 100) %}always{% endif %}",
    "{%- for m in messages -%}\n  {{- '<|' + m.role + '|>' -}}\n  {%- generation -%} a {{ m.role }} {%- endgeneration -%}\n{%- endfor -%}",
    "{% for m in messages %}{% generation %}{{ m.role }} ü{% endgeneration %} {% endfor %}",
    "{% for x in 5 %}{% endfor %}", "{% if %}{% endif %}", "{% for %}{% endfor %}", "{{ 1 + }}", "{{ ( }}", "{% if 1 %}", "{% endif %}", "{{ 'a }}", "{% set x = %}",
    "{% break %}", "{{ a b }}", "{% nosuch %}", "{% set d.a = 1 %}", "{{ d.a.b.c }}", "{# open", "{% raw %}x", "{{ 1 is 2 }}", "{{ {1: 2}[1] }}", "{% for a, b in w %}{% endfor %}",
    "{% for x in range(100000) %}{% for y in range(100000) %}{% endfor %}{% endfor %}", "{{ 'x' * 100000000000 }}", "{{ 2 ** 100000 }}" if False else "{{ [0] * 100000000000 }}",
]
# Where jinja2 goes on and we stop on purpose: limits, and what needs numbers of any length.
STRICTER = {"{% for x in range(100000) %}{% for y in range(100000) %}{% endfor %}{% endfor %}", "{{ 'x' * 100000000000 }}", "{{ [0] * 100000000000 }}"}


def jinja(source, variables):
    try:
        template = chat_template_utils._compile_jinja_template(source)
        text, spans = chat_template_utils._render_with_assistant_indices(
            template, variables["messages"], None, None, False, **{k: v for k, v in variables.items() if k != "messages"})
        return text, [list(s) for s in spans]
    except (jinja2.exceptions.TemplateError, TypeError, ValueError, OverflowError, RecursionError, AttributeError, KeyError, IndexError, MemoryError, SyntaxError) as error:
        return None, repr(error)


def program(arguments, lines):
    run = subprocess.run([os.path.join(os.environ.get("MSO_BUILD", "."), "encode_chat"), *arguments], text=True, check=True,
                         input="".join(json.dumps(line) + "\n" for line in lines), stdout=subprocess.PIPE)
    return [json.loads(line) for line in run.stdout.split("\n")[:-1]]


def language():
    sources = ["{{ " + e.strip() + " }}" for line in EXPRESSIONS.strip().split("\n") for e in line.split(" ;; ")] + BODIES
    mine = program(["--jinja"], [{"template": s, "variables": {**VARIABLES, "tools": None, "documents": None, "add_generation_prompt": False}} for s in sources])
    wrong = 0
    for source, ours in zip(sources, mine):
        if source in STRICTER:
            text, spans = None, "limit"
        elif "strftime_now" in source:  # a rendering without a date has no such function
            continue
        else:
            text, spans = jinja(source, VARIABLES)
        same = "error" in ours if text is None else ours.get("text") == text and ours.get("generations") == spans
        if not same:
            wrong += 1
            print(f"  {source!r}\n    jinja2 {text!r} {spans}\n    ours   {ours}")
    print(f"language: {len(sources) - wrong} of {len(sources)} templates equal")
    return wrong


# ---- 2. templates in the style of the published ones ----

CHATML = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
TEXT = {
    "chatml": CHATML,
    "chatml_generation": """{%- for message in messages %}
    {%- if loop.first and message['role'] != 'system' %}
        {{- '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}
    {%- endif %}
    {%- if message['role'] == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}
    {%- else %}
        {{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
""",
    "llama2": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""",
    "llama3": """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|im_start|>' + message['role'] + '\n\n'+ message['content'] | trim + '<|im_end|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n\n' }}{% endif %}""",
    "llama3.1": """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- The system message comes first. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|im_start|>system\n\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\n\n" }}
{{- system_message }}
{{- "<|im_end|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|im_start|>' + message['role'] + '\n\n' }}
        {%- if message['content'] is string %}
            {{- message['content'] | trim}}
        {%- else %}
            {%- for content in message['content'] %}
                {%- if content['type'] == 'image' %}
                    {{- '<image>' }}
                {%- elif content['type'] == 'text' %}
                    {{- content['text'] | trim }}
                {%- endif %}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one tool call at a time") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|im_start|>assistant\n\n' -}}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}<|im_end|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n\n' }}
{%- endif %}
""",
    "mistral": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("roles must alternate user/assistant") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- else %}
        {{- raise_exception("only user and assistant roles are supported") }}
    {%- endif %}
{%- endfor %}
""",
    "gemma": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}""",
    "phi3": """{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}""",
    "vicuna": """{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{{ messages[0]['content'] }}{% else %}{% set rest = messages %}A chat.{% endif %}{% for message in rest %}{% if loop.index0 == 0 %}{{ ' ' }}{% endif %}{% if message['role'] == 'user' %}{{ 'USER: ' + message['content'].strip() + ' ' }}{% else %}{{ 'ASSISTANT: ' + message['content'].strip() + eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}""",
    "thinking": """{%- set ns = namespace(last=messages|length - 1, multi=true) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi and message.role == "user" and not(message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}
        {%- set ns.multi = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set reasoning = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last %}
            {{- '<|im_start|>assistant\n<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>assistant\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}""",
    "macro": """{%- macro header(role, name=none) -%}
<|im_start|>{{ role | upper }}{% if name %} ({{ name }}){% endif %}:
{%- endmacro -%}
{%- for m in messages -%}
{{ header(m.role, m.name) }} {{ m.content | replace('\n\n', '\n') }}<|im_end|>
{% endfor -%}
{% if add_generation_prompt %}{{ header('assistant') }} {% endif %}""",
}
PARTS = {
    "llava": """{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': '}}{% endif %}{# Render all images first #}{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}{# Render all text next #}{% if message['role'] != 'assistant' %}{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ content['text'] + ' '}}{% endfor %}{% else %}{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{% generation %}{{ content['text'] + ' '}}{% endgeneration %}{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}""",
    "llava_next_mistral": """{% for message in messages %}{% if message['role'] == 'system' %}{{ '<<SYS>>\n' + message['content'][0]['text'] + '\n<</SYS>>\n\n' }}{% elif message['role'] == 'user' %}{{ '[INST] ' }}{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ content['text'] }}{% endfor %}{{' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'][0]['text'] + eos_token }}{% else %}{{ raise_exception('unknown role') }}{% endif %}{% endfor %}""",
    "qwen2_vl": """{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system
You are a helpful assistant.<|im_end|>
{% endif %}<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}<|im_end|>
{% else %}{% for content in message['content'] %}{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}{% set image_count.value = image_count.value + 1 %}{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}<|vision_start|><image><|vision_end|>{% elif content['type'] == 'video' or 'video' in content %}{% set video_count.value = video_count.value + 1 %}{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}<|vision_start|><video><|vision_end|>{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}""",
    "internvl": """{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for content in message['content'] %}{% if content['type'] == 'image' %}{{ '<image>\n' }}{% elif content['type'] == 'video' %}{{ '<video>\n' }}{% elif content['type'] == 'text' %}{{ content['text'] }}{% endif %}{% endfor %}{% endif %}{{'<|im_end|>\n'}}{% endfor %}{% if add_generation_prompt %}{{'<|im_start|>assistant\n' }}{% endif %}""",
    "phi4": """{% for message in messages %}<|{{ message.role }}|>{% if message.content is string %}{{ message.content }}{% else %}{% for c in message.content %}{% if c.type == 'text' %}{{ c.text }}{% else %}<{{ c.type }}>{% endif %}{% endfor %}{% endif %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}""",
}

WORDS = ["Hello", "wörld", "chat", "图片", "🐻", "what", "is", "this?", "A", "cat.", "\n", "  ", "\t", "it's", "42", "<b>", "é", "e\u0301", "\u200d", "the", "owl", "'s", "...", "\n\n", "<think>\nhm\n</think>\n\nyes", "§"]


def text_of(rng, spaces=True):
    text = "".join(rng.choice(WORDS) + rng.choice(["", " ", " "]) for _ in range(rng.randint(1, 9)))
    return text if spaces and rng.random() < 0.3 else text.strip() or "x"


def conversations(rng, parts, count):
    out = []
    for i in range(count):
        turns = []
        if rng.random() < 0.4:
            turns.append({"role": "system", "content": text_of(rng)})
        for _ in range(rng.randint(1, 4)):
            turns.append({"role": "user", "content": text_of(rng)})
            turns.append({"role": "assistant", "content": text_of(rng)})
        if rng.random() < 0.15:
            turns.append({"role": "user", "content": text_of(rng)})
        if rng.random() < 0.05:
            turns.pop(rng.randrange(len(turns)))
        if parts:
            for turn in turns:
                pieces = [{"type": "text", "text": turn["content"]}]
                if turn["role"] == "user":
                    for _ in range(rng.choice([0, 0, 1, 1, 2])):
                        kind = parts[rng.randrange(len(parts))]
                        pieces.insert(rng.randint(0, len(pieces)), {"type": kind, kind: f"{rng.randint(0, 99)}.x"})
                    if rng.random() < 0.2:
                        pieces.append({"type": "text", "text": " " + text_of(rng)})
                turn["content"] = pieces
        if turns:
            out.append({"id": f"c{i}", "messages": turns})
    return out


SPECIAL = ["<s>", "</s>", "<image>", "<video>", "<audio>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<start_of_turn>", "<end_of_turn>",
           "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]


def tokenizers(rng):
    corpus = [text_of(rng) for _ in range(1500)] + ["USER: ASSISTANT: [INST] [/INST] <<SYS>> system user assistant model helpful"] * 20
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    level = Tokenizer(models.BPE())
    level.normalizer = normalizers.NFC()
    level.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, True, False)])
    level.decoder = decoders.ByteLevel()
    level.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=600, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    level.post_processor = processors.ByteLevel(trim_offsets=False)
    gpt2 = Tokenizer(models.BPE())
    gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(False, True, True)
    gpt2.decoder = decoders.ByteLevel()
    gpt2.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=500, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    gpt2.post_processor = processors.ByteLevel(trim_offsets=True)
    fallback = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    fallback.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", "always", True)
    fallback.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=700, show_progress=False, limit_alphabet=60,
                                                             special_tokens=["<unk>"] + [f"<0x{b:02X}>" for b in range(256)]))
    llama = json.loads(fallback.to_str())
    llama["added_tokens"] = [t for t in llama["added_tokens"] if t["content"] == "<unk>"]
    llama["pre_tokenizer"] = None
    llama["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
                                                               {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
    first = json.loads(json.dumps(llama))
    first["normalizer"] = None
    first["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    made = {"byte_level": level, "gpt2": gpt2, "llama": Tokenizer.from_str(json.dumps(llama)), "metaspace": Tokenizer.from_str(json.dumps(first))}
    for tokenizer in made.values():
        tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    return made


def prefix_mask(tokenizer, template, messages, text, offsets, ids):
    """The rule of io/conversation_encoder.h for templates without {% generation %}, computed anew."""
    def render(turns, prompt):
        if not turns and not prompt:
            return ""
        try:
            return chat_template_utils.render_jinja_template([messages[:turns]], chat_template=template, add_generation_prompt=prompt,
                                                             **tokenizer.special_tokens_map)[0][0]
        except jinja2.exceptions.TemplateError:
            return None
    special = set(tokenizer.added_tokens_decoder)
    mask, cursor, previous_end = [0] * len(ids), 0, 0
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        content = message["content"]
        words = [w for w in [content.strip()] if w] if isinstance(content, str) else [c["text"].strip() for c in content if c["type"] == "text" and c["text"].strip()]
        before, prompt = render(i, False), render(i, True)
        if before is not None and prompt is not None and len(prompt) > len(before) and prompt.startswith(before) and text.startswith(prompt) and len(prompt) >= cursor:
            start = len(prompt)
        elif not words:
            continue
        else:
            start = text.find(words[0], max(cursor, len(before)) if before is not None and text.startswith(before) else cursor)
            if start < 0:
                return None
        through = text if i + 1 == len(messages) else render(i + 1, False)
        joins = False
        if through is not None and text.startswith(through) and len(through) >= start:
            end = len(through)
        else:
            end = text.find(words[-1], start) if words else start
            if end < 0:
                return None
            end, joins = end + (len(words[-1]) if words else 0), True
        cursor = end
        inside = [k for k, (a, b) in enumerate(offsets) if a < end and b > start]
        if joins and inside and inside[-1] + 1 < len(ids) and ids[inside[-1] + 1] in special and offsets[inside[-1] + 1][0] == end:
            inside.append(inside[-1] + 1)
        last = len(inside)
        while last > 0 and not text[offsets[inside[last - 1]][0]:offsets[inside[last - 1]][1]].strip():
            last -= 1
        if last > 0 and ids[inside[last - 1]] in special:
            inside = inside[:last]
        for k in inside:
            mask[k] = 1
    return mask


def templates(rng):
    wrong = compared = refused = 0
    made = tokenizers(rng)
    for name, template in {**TEXT, **PARTS}.items():
        kinds = None if name in TEXT else ["image", "video"] if name in ("qwen2_vl", "internvl") else ["image", "video", "audio"] if name == "phi4" else ["image"]
        entries = conversations(rng, kinds, 45)
        for which, core in list(made.items()) if name in ("chatml", "chatml_generation", "llava", "qwen2_vl") else [rng.choice(list(made.items()))]:
            tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>", chat_template=template,
                                                additional_special_tokens=SPECIAL[2:])
            with tempfile.TemporaryDirectory() as folder:
                tokenizer.save_pretrained(folder)
                mine = program([folder], entries)
            for entry, ours in zip(entries, mine):
                messages = entry["messages"]
                compared += 1
                try:
                    text = tokenizer.apply_chat_template(messages, tokenize=False)
                except jinja2.exceptions.TemplateError as error:
                    refused += 1
                    if "template_error" not in ours.get("error", "") and "refuses" not in ours.get("error", ""):
                        wrong += 1
                        print(f"  {name}/{which}: transformers refuses ({error}), we give {ours}")
                    continue
                # Media become three tokens each, as processors replace them in the text.
                marks = {"<image>", "<video>", "<audio>"}
                media = sum(1 for m in messages if isinstance(m["content"], list) for c in m["content"] if c["type"] != "text")
                if sum(text.count(m) for m in marks) != media:
                    if "template_error" not in ours.get("error", ""):
                        wrong += 1
                        print(f"  {name}/{which}: a medium is lost and we do not say so: {ours}")
                    continue
                out = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
                ids, mask = out["input_ids"], out["assistant_masks"]
                encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
                assert encoding["input_ids"] == ids
                if "{% generation %}" not in template:
                    mask = prefix_mask(tokenizer, template, messages, text, encoding["offset_mapping"], ids)
                media_ids = {tokenizer.convert_tokens_to_ids(m) for m in marks}
                wide, learn, positions = [], [], []
                for token, bit in zip(ids, mask or [0] * len(ids)):
                    for _ in range(3 if token in media_ids else 1):
                        if token in media_ids:
                            positions.append(len(wide))
                        wide.append(token)
                        learn.append(0 if token in media_ids else bit)
                labels = [wide[k + 1] if k + 1 < len(wide) and learn[k + 1] else -100 for k in range(len(wide))]
                if mask is None:
                    same = "template_error" in ours.get("error", "")
                elif all(label == -100 for label in labels):
                    same = "no_label" in ours.get("error", "")
                else:
                    same = (ours.get("text") == text and ours.get("ids") == wide and ours.get("labels") == labels
                            and sorted(sum(ours.get("positions", {}).values(), [])) == positions)
                if not same:
                    wrong += 1
                    if wrong < 12:
                        print(f"  {name}/{which} {json.dumps(messages, ensure_ascii=False)[:700]}\n    theirs {text!r}\n           {wide}\n           {labels}\n"
                              f"    ours   {ours.get('text')!r}\n           {ours.get('ids')}\n           {ours.get('labels')} {ours.get('error', '')}")
    print(f"templates: {compared - wrong} of {compared} conversations equal ({refused} refused by both), {len(TEXT) + len(PARTS)} templates")
    return wrong


# ---- 3. with pictures in, as training has it ----

def with_pictures(rng):
    """Ids of LlavaProcessor.apply_chat_template, which puts bos in front and a picture's tokens in their place."""
    from PIL import Image
    from transformers import CLIPImageProcessor, LlavaProcessor
    wrong = compared = 0
    core = tokenizers(rng)["llama"]
    core.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", core.token_to_id("<s>"))])
    picture = Image.new("RGB", (42, 14))
    for template in (PARTS["llava"], PARTS["llava_next_mistral"], PARTS["phi4"], "{{ bos_token }}" + PARTS["llava"]):
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>", chat_template=template,
                                            additional_special_tokens=SPECIAL[2:])
        tokenizer.image_token = "<image>"
        size = {"height": 14, "width": 42}  # three patches: three tokens
        processor = LlavaProcessor(CLIPImageProcessor(size=size, crop_size=size), tokenizer, patch_size=14, vision_feature_select_strategy="default",
                                   num_additional_image_tokens=1, chat_template=template)
        entries = [e for e in conversations(rng, ["image"], 40)]
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save_pretrained(folder)
            mine = program([folder, "--bos"], entries)
        for entry, ours in zip(entries, mine):
            if "error" in ours:
                continue  # compared above
            for message in entry["messages"]:
                for part in message["content"]:
                    if part["type"] == "image":
                        part["image"] = picture
            ids = processor.apply_chat_template(entry["messages"], tokenize=True, return_dict=True)["input_ids"]
            ids = ids[0] if ids and isinstance(ids[0], list) else ids
            compared += 1
            if ids != ours["ids"]:
                wrong += 1
                print(f"  LlavaProcessor {ids}\n    ours         {ours['ids']}")
    print(f"with pictures: {compared - wrong} of {compared} conversations equal")
    return wrong or compared < 60


def main():
    rng = random.Random(17)
    return int(bool(language()) | bool(templates(rng)) | bool(with_pictures(rng)))


if __name__ == "__main__":
    sys.exit(main())
