/* Reads a Fetch response: finds the position of each partition's record set in its bytes.
 *
 * Plain C11 without Python.h, so that a fuzzer can run it: no allocation, no global state, no clock, no lock.  The table
 * of `schemas/fetch.py` is the reference.  This reader returns the same values, or it does not accept the bytes; then
 * the reference reads the whole response: it raises the error, or it returns the values (for example of tagged fields,
 * which are not read here).
 *
 * Safety: every position is compared with the end of the answer before a byte is read. */

#ifndef ZKCONSUMER_FETCH_CORE_H
#define ZKCONSUMER_FETCH_CORE_H

#include "records_core.h"

#define ZK_FETCH_VERSION_MAX 13
#define ZK_FETCH_FLEXIBLE_FROM 12
#define ZK_FETCH_TOPIC_IDS_FROM 13

/* Bytes of the id of a topic. */
#define ZK_TOPIC_ID_BYTES 16

/* Bytes of an aborted transaction: the producer id and the offset of its first record. */
#define ZK_ABORTED_BYTES 16

/* One partition.  Its topic is a name, or from version 13 on an id.  `records_start` is -1 for a null record set.
 * `last_stable_offset`, `log_start_offset` and `preferred_read_replica` are -1 before versions 4, 5 and 11.  The
 * `aborted_count` aborted transactions begin at `aborted_start`, each `aborted_stride` bytes after the one before. */
typedef struct {
    int64_t topic_start;
    int64_t topic_end;
    int32_t partition;
    int32_t error_code;
    int64_t high_watermark;
    int64_t last_stable_offset;
    int64_t log_start_offset;
    int32_t preferred_read_replica;
    int64_t aborted_start;
    int64_t aborted_count;
    int64_t aborted_stride;
    int64_t records_start;
    int64_t records_end;
} zk_fetched;

typedef enum { ZK_FETCHED_ROW, ZK_FETCHED_END, ZK_FETCHED_ODD } zk_fetched_step;

typedef struct {
    const uint8_t *data;
    const uint8_t *at;
    const uint8_t *end;
    int32_t version;
    bool is_flexible;
    bool is_odd;
    int32_t throttle_ms;
    int32_t error_code;
    int32_t session_id;
    int64_t topics_left;
    int64_t partitions_left; /* of the topic at `topic_start` */
    int64_t topic_start;
    int64_t topic_end;
} zk_fetch_answer;

/* Returns the position of the next `bytes` bytes; NULL if the response has fewer. */
static inline const uint8_t *zk_answer_take(zk_fetch_answer *a, int64_t bytes) {
    const uint8_t *at = a->at;
    if (a->is_odd || bytes < 0 || bytes > a->end - at) {
        a->is_odd = true;
        return NULL;
    }
    a->at = at + bytes;
    return at;
}

static inline int32_t zk_answer_i16(zk_fetch_answer *a) {
    const uint8_t *at = zk_answer_take(a, 2);
    return at ? (int16_t)((uint16_t)at[0] << 8 | at[1]) : 0;
}

static inline int32_t zk_answer_i32(zk_fetch_answer *a) {
    const uint8_t *at = zk_answer_take(a, 4);
    return at ? zk_i32(at) : 0;
}

static inline int64_t zk_answer_i64(zk_fetch_answer *a) {
    const uint8_t *at = zk_answer_take(a, 8);
    return at ? zk_i64(at) : 0;
}

/* Reads an unsigned varint of at most 32 bits (KIP-482). */
static inline int64_t zk_answer_uvarint(zk_fetch_answer *a) {
    uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        const uint8_t *at = zk_answer_take(a, 1);
        if (!at) return 0;
        value |= (uint64_t)(*at & 0x7F) << shift;
        if (*at < 0x80) {
            if (value > UINT32_MAX) break;
            return (int64_t)value;
        }
    }
    a->is_odd = true;
    return 0;
}

/* Reads a length or a count; -1 for null. */
static inline int64_t zk_answer_length(zk_fetch_answer *a) {
    int64_t length = a->is_flexible ? zk_answer_uvarint(a) - 1 : zk_answer_i32(a);
    if (length < -1) a->is_odd = true;
    return length;
}

/* Returns whether there are no tagged fields; if there are, the reference must read them. */
static inline void zk_answer_tags(zk_fetch_answer *a) {
    if (a->is_flexible && zk_answer_uvarint(a)) a->is_odd = true;
}

/* Reads the fields before the topics; false: the reference must read the response. */
static bool zk_fetch_open(zk_fetch_answer *a, const uint8_t *data, int64_t start, int64_t bytes, int32_t version) {
    *a = (zk_fetch_answer){.data = data, .at = data + start, .end = data + bytes, .version = version};
    a->is_flexible = version >= ZK_FETCH_FLEXIBLE_FROM;
    if (version < 0 || version > ZK_FETCH_VERSION_MAX) return false;
    if (version >= 1) a->throttle_ms = zk_answer_i32(a);
    if (version >= 7) {
        a->error_code = zk_answer_i16(a);
        a->session_id = zk_answer_i32(a);
    }
    a->topics_left = zk_answer_length(a);
    return !a->is_odd && a->topics_left >= 0;
}

static zk_fetched_step zk_fetch_odd(zk_fetch_answer *a) {
    a->is_odd = true;
    return ZK_FETCHED_ODD;
}

/* Reads the next partition. */
static zk_fetched_step zk_fetch_next(zk_fetch_answer *a, zk_fetched *row) {
    while (!a->partitions_left) {
        if (a->topic_end) zk_answer_tags(a);
        if (!a->topics_left) {
            zk_answer_tags(a);
            return a->is_odd || a->at != a->end ? zk_fetch_odd(a) : ZK_FETCHED_END;
        }
        a->topics_left--;
        int64_t length = ZK_TOPIC_ID_BYTES;
        if (a->version < ZK_FETCH_TOPIC_IDS_FROM)
            length = a->is_flexible ? zk_answer_uvarint(a) - 1 : zk_answer_i16(a);
        if (length > INT16_MAX) return zk_fetch_odd(a);
        const uint8_t *name = zk_answer_take(a, length);
        a->partitions_left = zk_answer_length(a);
        /* No broker sends a topic without partitions; the caller does not receive its name. */
        if (!name || a->is_odd || a->partitions_left <= 0) return zk_fetch_odd(a);
        a->topic_start = name - a->data;
        a->topic_end = a->topic_start + length;
    }
    a->partitions_left--;
    row->topic_start = a->topic_start;
    row->topic_end = a->topic_end;
    row->partition = zk_answer_i32(a);
    row->error_code = zk_answer_i16(a);
    row->high_watermark = zk_answer_i64(a);
    row->last_stable_offset = a->version >= 4 ? zk_answer_i64(a) : -1;
    row->log_start_offset = a->version >= 5 ? zk_answer_i64(a) : -1;
    row->aborted_start = row->aborted_count = 0;
    row->aborted_stride = ZK_ABORTED_BYTES + a->is_flexible;
    if (a->version >= 4) {
        int64_t count = zk_answer_length(a);
        row->aborted_start = a->at - a->data;
        for (; row->aborted_count < count && !a->is_odd; row->aborted_count++) {
            const uint8_t *before = a->at;
            zk_answer_take(a, ZK_ABORTED_BYTES);
            zk_answer_tags(a);
            /* An empty list of tags may have more than one byte; no broker writes it so. */
            if (a->at - before != row->aborted_stride) a->is_odd = true;
        }
    }
    row->preferred_read_replica = a->version >= 11 ? zk_answer_i32(a) : -1;
    int64_t length = zk_answer_length(a);
    row->records_start = row->records_end = -1;
    if (length >= 0) {
        const uint8_t *records = zk_answer_take(a, length);
        if (!records) return zk_fetch_odd(a);
        row->records_start = records - a->data;
        row->records_end = row->records_start + length;
    }
    zk_answer_tags(a);
    return a->is_odd ? zk_fetch_odd(a) : ZK_FETCHED_ROW;
}

#endif
