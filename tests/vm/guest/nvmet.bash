# An NVMe target by the kernel's configfs, and connecting to it.
target=/sys/kernel/config/nvmet
modprobe nvmet
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config

subsystem() { # NAME
  mkdir -p "$target/subsystems/$1" && echo 1 >"$target/subsystems/$1/attr_allow_any_host"
}
add_namespace() { # SUBSYSTEM NSID DEVICE UUID
  local folder=$target/subsystems/$1/namespaces/$2
  mkdir -p "$folder" && echo -n "$3" >"$folder/device_path" && echo "$4" >"$folder/device_uuid" && echo 1 >"$folder/enable"
}
port() { # ID TRANSPORT ADDRESS SERVICE SUBSYSTEM…
  local folder=$target/ports/$1
  mkdir -p "$folder" && echo "$2" >"$folder/addr_trtype" && echo ipv4 >"$folder/addr_adrfam" &&
    echo "$3" >"$folder/addr_traddr" && echo "$4" >"$folder/addr_trsvcid"
  for name in "${@:5}"; do ln -s "$target/subsystems/$name" "$folder/subsystems/$name"; done
}
connect() { # TRANSPORT ADDRESS SERVICE SUBSYSTEM
  local host=9f098843-a6fb-4dd1-9cee-5c4f006afd5f answer
  exec 9<>/dev/nvme-fabrics
  printf 'transport=%s,traddr=%s,trsvcid=%s,nqn=%s,hostnqn=nqn.2014-08.org.nvmexpress:uuid:%s,hostid=%s,ctrl_loss_tmo=20,fast_io_fail_tmo=2' \
    "$1" "$2" "$3" "$4" "$host" "$host" >&9 && read -r answer <&9
  local code=$?
  exec 9>&-
  echo "connected $4 over $1: $answer"
  return $code
}
wait_for() { # SECONDS COMMAND…
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || { echo "gave up on: $*"; return 1; }; sleep 0.2; done
}
