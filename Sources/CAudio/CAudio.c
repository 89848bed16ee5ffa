// Observes the audio streams of one PipeWire server.
#include "CAudio.h"

#include <errno.h>
#include <pipewire/impl.h>
#include <pipewire/pipewire.h>
#include <spa/param/props.h>
#include <spa/pod/iter.h>
#include <stdlib.h>
#include <string.h>

// More objects are ignored, so that no client of the server can have them take memory without limit.
enum { most_clients = 1024, most_nodes = 512 };

// A process that is connected to the server.
struct client {
    struct spa_list link;
    uint32_t id;
    pid_t pid;
};

// A stream of audio to or from a client.
struct node {
    struct spa_list link;
    struct caudio_observer *observer;
    struct pw_proxy *proxy;
    struct spa_hook listener;
    uint32_t id;
    uint32_t client;
    pid_t claimed_pid;
    int is_running;
    int is_muted;
};

struct caudio_observer {
    struct pw_loop *loop;
    struct pw_context *context;
    struct pw_core *core;
    struct spa_hook core_listener;
    struct pw_registry *registry;
    struct spa_hook registry_listener;
    struct spa_list clients;
    struct spa_list nodes;
    int client_count;
    int node_count;
    // Answers that are awaited: to the list of objects, and then to the questions about each.
    int round;
    int sequence;
    int result;
};

static pid_t process(const struct spa_dict *properties, const char *key) {
    const char *text = properties ? spa_dict_lookup(properties, key) : NULL;
    long value = text ? strtol(text, NULL, 10) : 0;
    return value > 0 && value <= INT32_MAX ? (pid_t)value : 0;
}

// ── Streams ──────────────────────────────────────────────────────────────────────────────────────────────────────

static void node_info(void *data, const struct pw_node_info *info) {
    struct node *node = data;
    if (info->change_mask & PW_NODE_CHANGE_MASK_STATE) node->is_running = info->state == PW_NODE_STATE_RUNNING;
    if (info->change_mask & PW_NODE_CHANGE_MASK_PROPS && info->props) {
        const char *api = spa_dict_lookup(info->props, PW_KEY_CLIENT_API);
        int is_server = api && strcmp(api, "pipewire-pulse") == 0;
        node->claimed_pid = is_server ? process(info->props, PW_KEY_APP_PROCESS_ID) : 0;
    }
    node->observer->result |= CAUDIO_CHANGED;
}

static void node_param(
    void *data, int sequence, uint32_t id, uint32_t index, uint32_t next, const struct spa_pod *param) {
    (void)sequence, (void)index, (void)next;
    struct node *node = data;
    if (id != SPA_PARAM_Props || !param || !spa_pod_is_object(param)) return;
    const struct spa_pod_prop *property = spa_pod_find_prop(param, NULL, SPA_PROP_mute);
    bool is_muted;
    if (!property || spa_pod_get_bool(&property->value, &is_muted) < 0) return;
    node->is_muted = is_muted;
    node->observer->result |= CAUDIO_CHANGED;
}

static const struct pw_node_events node_events = {
    PW_VERSION_NODE_EVENTS,
    .info = node_info,
    .param = node_param,
};

static void remove_node(struct node *node) {
    node->observer->node_count--;
    node->observer->result |= CAUDIO_CHANGED;
    spa_list_remove(&node->link);
    spa_hook_remove(&node->listener);
    pw_proxy_destroy(node->proxy);
    free(node);
}

static void add_node(struct caudio_observer *observer, uint32_t id, const struct spa_dict *properties) {
    const char *kind = properties ? spa_dict_lookup(properties, PW_KEY_MEDIA_CLASS) : NULL;
    if (!kind || (strcmp(kind, "Stream/Output/Audio") != 0 && strcmp(kind, "Stream/Input/Audio") != 0)) return;
    if (observer->node_count >= most_nodes) return;
    struct node *node = calloc(1, sizeof *node);
    if (!node) return;
    node->proxy = pw_registry_bind(observer->registry, id, PW_TYPE_INTERFACE_Node, PW_VERSION_NODE, 0);
    if (!node->proxy) {
        free(node);
        return;
    }
    const char *client = spa_dict_lookup(properties, PW_KEY_CLIENT_ID);
    node->observer = observer;
    node->id = id;
    node->client = client ? (uint32_t)strtoul(client, NULL, 10) : SPA_ID_INVALID;
    spa_list_append(&observer->nodes, &node->link);
    observer->node_count++;
    pw_node_add_listener((struct pw_node *)node->proxy, &node->listener, &node_events, node);
    uint32_t wanted[] = {SPA_PARAM_Props};
    pw_node_subscribe_params((struct pw_node *)node->proxy, wanted, 1);
}

// ── The server's objects ─────────────────────────────────────────────────────────────────────────────────────────

static void add_client(struct caudio_observer *observer, uint32_t id, const struct spa_dict *properties) {
    if (observer->client_count >= most_clients) return;
    struct client *client = calloc(1, sizeof *client);
    if (!client) return;
    client->id = id;
    client->pid = process(properties, PW_KEY_SEC_PID);
    spa_list_append(&observer->clients, &client->link);
    observer->client_count++;
}

static void object_added(
    void *data, uint32_t id, uint32_t permissions, const char *type, uint32_t version,
    const struct spa_dict *properties) {
    (void)permissions, (void)version;
    if (strcmp(type, PW_TYPE_INTERFACE_Client) == 0) add_client(data, id, properties);
    if (strcmp(type, PW_TYPE_INTERFACE_Node) == 0) add_node(data, id, properties);
}

static void object_removed(void *data, uint32_t id) {
    struct caudio_observer *observer = data;
    struct node *node;
    spa_list_for_each(node, &observer->nodes, link) {
        if (node->id != id) continue;
        remove_node(node);
        return;
    }
    struct client *client;
    spa_list_for_each(client, &observer->clients, link) {
        if (client->id != id) continue;
        spa_list_remove(&client->link);
        observer->client_count--;
        free(client);
        return;
    }
}

static const struct pw_registry_events registry_events = {
    PW_VERSION_REGISTRY_EVENTS,
    .global = object_added,
    .global_remove = object_removed,
};

static void core_done(void *data, uint32_t id, int sequence) {
    struct caudio_observer *observer = data;
    if (id != PW_ID_CORE || sequence != observer->sequence || observer->round >= 3) return;
    // First come the objects, then their states, then their parameters.
    observer->round++;
    if (observer->round < 3) observer->sequence = pw_core_sync(observer->core, PW_ID_CORE, observer->sequence);
    observer->result |= CAUDIO_CHANGED;
}

static void core_error(void *data, uint32_t id, int sequence, int result, const char *message) {
    (void)sequence, (void)message;
    struct caudio_observer *observer = data;
    // An error of another object concerns one that is going.
    if (id == PW_ID_CORE) observer->result |= CAUDIO_LOST;
    (void)result;
}

static const struct pw_core_events core_events = {
    PW_VERSION_CORE_EVENTS,
    .done = core_done,
    .error = core_error,
};

// ── The connection ───────────────────────────────────────────────────────────────────────────────────────────────

// Without the configuration of clients, which has modules that only players need.
static struct pw_context *make_context(struct pw_loop *loop) {
    struct pw_properties *properties =
        pw_properties_new(PW_KEY_CONFIG_NAME, "null", "mem.allow-mlock", "false", NULL);
    struct pw_context *context = pw_context_new(loop, properties, 0);
    if (!context) return NULL;
    if (pw_context_load_module(context, "libpipewire-module-protocol-native", NULL, NULL)) return context;
    pw_context_destroy(context);
    return NULL;
}

static int connect_observer(struct caudio_observer *observer, const char *socket_path) {
    observer->loop = pw_loop_new(NULL);
    if (!observer->loop) return -1;
    pw_loop_enter(observer->loop);
    observer->context = make_context(observer->loop);
    if (!observer->context) return -1;
    struct pw_properties *properties = pw_properties_new(
        PW_KEY_REMOTE_NAME, socket_path, PW_KEY_APP_NAME, "Nightbell", PW_KEY_MEDIA_CATEGORY, "Monitor", NULL);
    observer->core = pw_context_connect(observer->context, properties, 0);
    if (!observer->core) return -1;
    pw_core_add_listener(observer->core, &observer->core_listener, &core_events, observer);
    observer->registry = pw_core_get_registry(observer->core, PW_VERSION_REGISTRY, 0);
    if (!observer->registry) return -1;
    pw_registry_add_listener(observer->registry, &observer->registry_listener, &registry_events, observer);
    observer->sequence = pw_core_sync(observer->core, PW_ID_CORE, 0);
    return 0;
}

caudio_observer *caudio_open(const char *socket_path) {
    struct caudio_observer *observer = calloc(1, sizeof *observer);
    if (!observer) return NULL;
    spa_list_init(&observer->clients);
    spa_list_init(&observer->nodes);
    // Does nothing the second time.
    pw_init(NULL, NULL);
    // It would warn of the configuration that is left out.
    pw_log_set_level(SPA_LOG_LEVEL_NONE);
    errno = 0;
    if (connect_observer(observer, socket_path) == 0) return observer;
    int code = errno ? errno : ENOTCONN;
    caudio_close(observer);
    errno = code;
    return NULL;
}

void caudio_close(caudio_observer *observer) {
    struct node *node, *next_node;
    spa_list_for_each_safe(node, next_node, &observer->nodes, link) remove_node(node);
    struct client *client, *next_client;
    spa_list_for_each_safe(client, next_client, &observer->clients, link) free(client);
    if (observer->registry) {
        spa_hook_remove(&observer->registry_listener);
        pw_proxy_destroy((struct pw_proxy *)observer->registry);
    }
    if (observer->core) {
        spa_hook_remove(&observer->core_listener);
        pw_core_disconnect(observer->core);
    }
    if (observer->context) pw_context_destroy(observer->context);
    if (observer->loop) {
        pw_loop_leave(observer->loop);
        pw_loop_destroy(observer->loop);
    }
    free(observer);
}

int caudio_descriptor(const caudio_observer *observer) { return pw_loop_get_fd(observer->loop); }

int caudio_process(caudio_observer *observer) {
    if (pw_loop_iterate(observer->loop, 0) < 0) observer->result |= CAUDIO_LOST;
    int result = observer->result;
    observer->result = 0;
    return result;
}

int caudio_is_complete(const caudio_observer *observer) { return observer->round >= 3; }

size_t caudio_streams(const caudio_observer *observer, struct caudio_stream *streams, size_t capacity) {
    size_t count = 0;
    const struct node *node;
    spa_list_for_each(node, &observer->nodes, link) {
        if (!node->is_running || node->is_muted || count == capacity) continue;
        struct caudio_stream stream = {.claimed_pid = node->claimed_pid};
        const struct client *client;
        spa_list_for_each(client, &observer->clients, link) {
            if (client->id == node->client) stream.pid = client->pid;
        }
        streams[count++] = stream;
    }
    return count;
}
