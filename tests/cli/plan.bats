#!/usr/bin/env bats
# mso plan. MSO: path of the program; MSO_SRCDIR: the sources.

setup() {
  MSO=${MSO:-mso}
  ETC=${MSO_SRCDIR:-$BATS_TEST_DIRNAME/../..}/etc
  cd "$BATS_TEST_TMPDIR" || return 1
  unset MSO_SNAPSHOT_DIR MSO_LOG_LEVEL
}

# value JSON_POINTER < plan.json, by the dotted path of plain keys
value() { python3 -c 'import functools, json, sys; print(functools.reduce(lambda v, k: v[int(k)] if k.isdigit() else v[k], sys.argv[1].split("."), json.load(sys.stdin)))' "$1"; }

@test "shows stages, memory, levels, effective values and what is not in force" {
  run "$MSO" plan -c "$ETC/demo.yaml" --ranks 2
  [ "$status" -eq 0 ]
  for word in vision_encoder projector llm_decoder "2 ranks" "Memory of a rank" "RAM disk /dev/shm" \
    "train.steps" "demo.yaml:" "Defaults not in force yet" "hpgc.grad_clip_ratio: 0.01"; do
    [[ $output == *"$word"* ]] || { echo "missing: $word"; return 1; }
  done
}

@test "--json holds the numbers" {
  "$MSO" plan -c "$ETC/demo.yaml" --ranks 4 --nodes 2 --json > plan.json
  [ "$(value plan.ranks < plan.json)" = 4 ]
  [ "$(value plan.stages.0.data_parallel < plan.json)" = 4 ]
  [ "$(value snapshots.partner < plan.json)" = True ]
  trained=$(value model.trainable_parameters < plan.json)
  [ "$(value snapshots.level2.total_generation_bytes < plan.json)" -eq $((12 * trained)) ]
  [ "$(value config.ero.nvme_reserve_channels < plan.json)" = 2 ]
}

@test "freezing, precision and recomputation change the plan" {
  "$MSO" plan -c "$ETC/demo.yaml" --json > all.json
  "$MSO" plan -c "$ETC/demo.yaml" --json "model.freeze=[vision_encoder, llm_decoder]" train.precision=bf16 > some.json
  [ "$(value model.parameters < all.json)" = "$(value model.parameters < some.json)" ]
  [ "$(value model.trainable_parameters < some.json)" -eq $((96 * 192 + 192 + 192 * 192 + 192)) ]
  [ "$(value plan.stages.0.precision < some.json)" = bf16 ]
  run "$MSO" plan -c "$ETC/demo.yaml" model.freeze=vision_encodr
  [ "$status" -eq 2 ]
}

@test "a model folder is read; what is wrong with one is named" {
  mkdir m
  echo '{"model_type": "llava", "vision_config": {"image_size": 336, "patch_size": 14, "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 24, "num_attention_heads": 16}, "text_config": {"vocab_size": 32064}}' > m/config.json
  "$MSO" plan model.path=m model.tokenizer=bytes --json 2>/dev/null > plan.json
  [ "$(value model.parameters < plan.json)" = 7063427072 ]
  run "$MSO" plan model.path=nowhere
  [ "$status" -eq 2 ]
  [[ $output == *nowhere/config.json* ]]
  for bad in '{' '[]' '{}' '{"model_type": "bert"}' '{"model_type": "llava", "text_config": {"hidden_size": "x"}}'; do
    echo "$bad" > m/config.json
    run "$MSO" plan model.path=m
    [ "$status" -eq 2 ]
  done
}

@test "without a model: says what to give" {
  run "$MSO" plan
  [ "$status" -eq 2 ]
  [[ $output == *model.path* ]]
}

@test "the job's snapshot directory and ecm.level0_path are looked at" {
  MSO_SNAPSHOT_DIR=$BATS_TEST_TMPDIR/job run "$MSO" plan -c "$ETC/demo.yaml" --json
  [ "$(echo "$output" | value ram_disk.path)" = "$BATS_TEST_TMPDIR" ]
  run "$MSO" plan -c "$ETC/demo.yaml" ecm.level0_path=/proc
  [ "$status" -eq 0 ]
  [[ $output == *"not a RAM disk"* ]]
}

@test "ranks out of range are refused" {
  for ranks in 0 -1 x 99999999999; do
    run "$MSO" plan -c "$ETC/demo.yaml" --ranks $ranks
    [ "$status" -eq 2 ]
  done
}

@test "what training refuses is refused: nodes, image token, tokenizer, template, device" {
  run "$MSO" plan -c "$ETC/demo.yaml" --ranks 2 --nodes 3
  [ "$status" -eq 2 ]
  [[ $output == *"more nodes than ranks"* ]]
  for bad in model.image_token_index=264 model.text.vocab_size=260 model.tokenizer=/nowhere data.template=x data.caption=x \
    train.device=cuda data.image_size=17; do
    run "$MSO" plan -c "$ETC/demo.yaml" $bad
    [ "$status" -eq 2 ] || { echo "$bad"; return 1; }
  done
  "$MSO" plan -c "$ETC/demo.yaml" model.image_token_index=auto --json >/dev/null
}

@test "data that is not there yet is told; a packed set with a hole is refused" {
  run "$MSO" plan -c "$ETC/demo.yaml" data.path=nowhere
  [ "$status" -eq 0 ]
  [[ $output == *"no data there yet"*": nowhere"* ]]
  mkdir shards
  echo '{"made_by": "mso data pack", "shards": 2}' > shards/dataset.json
  touch shards/shard-000000.tar
  run "$MSO" plan -c "$ETC/demo.yaml" data.path=shards
  [ "$status" -eq 3 ]
  [[ $output == *"shard-000001.tar is missing"* ]]
  touch shards/shard-000001.tar
  run "$MSO" plan -c "$ETC/demo.yaml" data.path=shards data.eval_shards=2
  [ "$status" -eq 2 ]
}
