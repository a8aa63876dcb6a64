# Sourced: podman and buildah with storage, networks and settings in $WORK; the machine's own settings are not read.
# STORAGE_DRIVER=vfs is for a TMPDIR on which no overlay can be mounted; it copies the image for each container.
export STORAGE_DRIVER="${STORAGE_DRIVER:-overlay}"
mkdir -p "$WORK"/{storage,run,tmp,networks}
cat > "$WORK/containers.conf" << END
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "$WORK/tmp"
static_dir = "$WORK/static"
volume_path = "$WORK/volumes"
[network]
network_backend = "netavark"
network_config_dir = "$WORK/networks"
END
cat > "$WORK/storage.conf" << END
[storage]
driver = "$STORAGE_DRIVER"
graphroot = "$WORK/storage"
runroot = "$WORK/run"
END
printf 'unqualified-search-registries = []\nshort-name-mode = "disabled"\n' > "$WORK/registries.conf"
echo '{"default": [{"type": "insecureAcceptAnything"}]}' > "$WORK/policy.json"
export CONTAINERS_CONF="$WORK/containers.conf" CONTAINERS_STORAGE_CONF="$WORK/storage.conf"
export CONTAINERS_REGISTRIES_CONF="$WORK/registries.conf" BUILDAH_ISOLATION=chroot TMPDIR="$WORK/tmp"
