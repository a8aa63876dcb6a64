#!/bin/sh
# Make this pod's server.properties from that of its role, and format its log directory unless it is formatted.
set -eu
umask 077
config=${CONFIG_DIR:-/etc/kraft}
run=${RUN_DIR:-/run/kraft}
ordinal=${POD_NAME##*-}
properties=$run/server.properties

cat "$config/config/$ROLE.properties" > "$properties"
printf '\nnode.id=%s\n' "$((NODE_ID_FIRST + ordinal))" >> "$properties"
if [ -f "$config/secret/server.properties" ]; then
    cat "$config/secret/server.properties" >> "$properties"
    echo >> "$properties"
fi
if [ -f "$config/tls/tls.key" ]; then
    cat "$config/tls/tls.key" "$config/tls/tls.crt" > "$run/keystore.pem"
fi

if [ "$ROLE" = controller ]; then
    if [ "$INITIALIZE" = true ]; then
        set -- --initial-controllers "$VOTERS"
    else
        set -- --no-initial-controllers
    fi
    echo "advertised.listeners=CONTROLLER://$POD_NAME.$HOST_SUFFIX:9093" >> "$properties"
else
    set --
    advertised="INTERNAL://$POD_NAME.$HOST_SUFFIX:9092"
    case $EXTERNAL_TYPE in
        NodePort) port=$((EXTERNAL_PORT + ordinal)) ;;
        *) port=$EXTERNAL_PORT ;;
    esac
    if [ "$EXTERNAL_TYPE" != None ]; then
        host=$(printf %s "$EXTERNAL_HOST" | sed "s/{ordinal}/$ordinal/g")
        case $host in *:*) host="[$host]" ;; esac
        advertised="$advertised,EXTERNAL://$host:$port"
    fi
    echo "advertised.listeners=$advertised" >> "$properties"
    case $RACK_SOURCE in
        PodLabel) zone=$ZONE ;;
        Node) zone=$(python3 "$config/config/zone") ;;
        *) zone= ;;
    esac
    if [ -n "$zone" ]; then
        echo "broker.rack=$zone" >> "$properties"
    elif [ "$RACK_SOURCE" != None ]; then
        echo "the zone of this machine is unknown: broker.rack is not set" >&2
    fi
fi

exec kraft storage format --ignore-formatted --config "$properties" --cluster-id "$CLUSTER_ID" "$@"
