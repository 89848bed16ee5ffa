#include "CChat.h"

#include <string.h>

size_t cchat_put_frame(unsigned char *place, int opcode, const void *payload, size_t length, uint32_t mask) {
    unsigned char *next = place;
    *next++ = (unsigned char)(0x80 | opcode);
    if (length < 126) {
        *next++ = (unsigned char)(0x80 | length);
    } else {
        *next++ = 0x80 | 126;
        *next++ = (unsigned char)(length >> 8);
        *next++ = (unsigned char)length;
    }
    unsigned char key[4];
    memcpy(key, &mask, sizeof key);
    memcpy(next, key, sizeof key);
    next += sizeof key;
    const unsigned char *bytes = payload;
    for (size_t index = 0; index < length; index++) *next++ = bytes[index] ^ key[index % 4];
    return (size_t)(next - place);
}

int cchat_take_frame(const unsigned char *bytes, size_t count, struct cchat_frame *frame) {
    if (count < 2) return 0;
    // One frame is one message here, and a server masks nothing.
    if ((bytes[0] & 0xF0) != 0x80 || bytes[1] & 0x80) return -1;
    frame->opcode = bytes[0] & 0x0F;
    size_t header = 2;
    uint64_t length = bytes[1];
    if (length >= 126) {
        size_t more = length == 126 ? 2 : 8;
        if (count < header + more) return 0;
        length = 0;
        for (size_t index = 0; index < more; index++) length = length << 8 | bytes[header + index];
        header += more;
    }
    if (length > 1 << 24) return -1;
    if (count < header + length) return 0;
    frame->payload = bytes + header;
    frame->length = length;
    frame->whole = header + length;
    return 1;
}

// The position after the string that begins here; null: it does not end.
static const char *after_string(const char *next, const char *end) {
    for (next++; next < end; next++) {
        if (*next == '\\') next++;
        else if (*next == '"') return next + 1;
    }
    return NULL;
}

static const char *after_space(const char *next, const char *end) {
    while (next < end && (*next == ' ' || *next == '\n' || *next == '\t' || *next == '\r')) next++;
    return next;
}

// The position after the value that begins here; null: it does not end.
static const char *after_value(const char *next, const char *end) {
    for (int depth = 0; next < end;) {
        if (*next == '"') {
            next = after_string(next, end);
            if (!next) return NULL;
            if (depth == 0) return next;
            continue;
        }
        if (*next == '{' || *next == '[') depth++;
        if (*next == '}' || *next == ']') {
            if (depth == 0) return next;
            if (--depth == 0) return next + 1;
        }
        if (*next == ',' && depth == 0) return next;
        next++;
    }
    return NULL;
}

const char *cchat_member(const char *object, size_t count, const char *name, size_t *length) {
    const char *end = object + count, *next = after_space(object, end);
    size_t name_length = strlen(name);
    if (next == end || *next++ != '{') return NULL;
    for (;;) {
        next = after_space(next, end);
        if (next == end || *next != '"') return NULL;
        const char *key = next + 1;
        next = after_string(next, end);
        if (!next) return NULL;
        size_t key_length = (size_t)(next - 1 - key);
        next = after_space(next, end);
        if (next == end || *next != ':') return NULL;
        const char *value = after_space(next + 1, end);
        next = after_value(value, end);
        if (!next) return NULL;
        if (key_length == name_length && memcmp(key, name, name_length) == 0) {
            int is_string = *value == '"';
            *length = (size_t)(next - value) - (is_string ? 2 : 0);
            return value + is_string;
        }
        next = after_space(next, end);
        if (next == end || *next++ != ',') return NULL;
    }
}

int64_t cchat_number(const char *object, size_t count, const char *name) {
    size_t length;
    const char *value = cchat_member(object, count, name, &length);
    int64_t number = 0;
    size_t digits = 0;
    for (; value && digits < length && digits < 18 && value[digits] >= '0' && value[digits] <= '9'; digits++) {
        number = number * 10 + (value[digits] - '0');
    }
    return digits > 0 ? number : -1;
}
