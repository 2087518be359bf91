/* The record decoder: decodes the bytes of a record set to a table of rows.
 *
 * Plain C11 without Python.h, so that a fuzzer can run it: no allocation, no global state, no clock, no lock.  The
 * Python modules `entries`, `records_legacy` and `records_v2` are the reference.  This decoder returns the same records
 * or stops with ZK_ODD before the first byte that it does not accept.  Then the reference reads that entry: it raises
 * the error, or it returns the records (for example for a varint that is longer than necessary).
 *
 * Safety: every position is compared with the end of its buffer before a byte is read.  The bytes may change while they
 * are read; a row may then be wrong, but its positions are inside of the buffer.
 *
 * Layouts: see `entries.py` (entries), `records_legacy.py` (formats 0 and 1), `records_v2.py` (format 2). */

#ifndef ZKCONSUMER_RECORDS_CORE_H
#define ZKCONSUMER_RECORDS_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "crc.h"

/* One record.  Positions are indexes of bytes in the buffer of the rows: the record set, or the decompressed payload of
 * an entry.  A length of -1 means null.  `header_count` headers are between `headers_start` and `headers_end`. */
typedef struct {
    int64_t offset;
    int64_t timestamp; /* ms since 1970, -1 in format 0 */
    int32_t key_start;
    int32_t key_length;
    int32_t value_start;
    int32_t value_length;
    int32_t headers_start;
    int32_t headers_end;
    int32_t header_count;
    int32_t timestamp_type; /* 0 producer, 1 log append, -1 none */
} zk_row;

typedef enum {
    ZK_END,    /* no complete entry follows: the end, or an incomplete entry */
    ZK_FULL,   /* the table is full */
    ZK_PACKED, /* the entry at `position` is compressed: decompress its payload, then zk_enter */
    ZK_LEFT,   /* all rows of the entered payload were returned; the record set is next */
    ZK_ODD     /* the reference must read the entry at `position`, then zk_skip */
} zk_stop;

typedef enum { ZK_NO_ENTRY, ZK_PENDING, ZK_BATCH, ZK_WRAPPER } zk_inside;

#define ZK_NO_END INT64_MAX

typedef struct {
    const uint8_t *set; /* the record set */
    int64_t set_bytes;
    int64_t start_offset; /* records below it are omitted */
    int64_t end_offset;   /* reading ends before the first record that has at least this offset */
    bool check_crcs;
    const int64_t *excluded; /* positions of batches to omit, ascending (aborted transactions) */
    int64_t excluded_count;
    const zk_crc *crc;

    /* The entry that is being read, or is next. */
    int64_t position;
    int64_t end;
    int64_t offset_before; /* the last offset that the entries before it cover */
    int64_t offset;        /* the offset in its header */
    int64_t last_offset;
    int32_t magic;
    int32_t codec;
    int64_t payload_start; /* only for a compressed entry */
    int64_t payload_end;

    /* The position in this entry. */
    zk_inside inside;
    const uint8_t *body; /* the buffer of its records: `set`, or the decompressed payload */
    int64_t body_end;
    int64_t at;    /* the next record */
    int64_t left;  /* the number of records that follow, in a batch */
    int64_t shift; /* is added to the offsets in a wrapper */
    int64_t base_timestamp;
    int64_t append_time;
    bool is_append;
    int64_t record_before; /* the offset of the last record that was read, or one below the first possible one */
} zk_cursor;

#define ZK_OFFSET_MAX (INT64_MAX - 1)
#define ZK_PREFIX_BYTES 12
#define ZK_MESSAGE_BYTES_MIN 14
#define ZK_BATCH_BYTES_MIN 49
#define ZK_BATCH_HEADER_BYTES 61
#define ZK_MAGIC_AT 16
#define ZK_HEADERS_MAX 100000
#define ZK_CODEC_MASK 0x07
#define ZK_LOG_APPEND_TIME 0x08
#define ZK_CONTROL 0x20

/* --- numbers as Kafka writes them --------------------------------------------------------------------------------- */

static inline uint32_t zk_u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline int32_t zk_i32(const uint8_t *at) { return (int32_t)zk_u32(at); }

static inline int64_t zk_i64(const uint8_t *at) { return (int64_t)((uint64_t)zk_u32(at) << 32 | zk_u32(at + 4)); }

/* Reads a zigzag varint of up to nine bytes.  Returns the byte after it; NULL if it is incomplete or longer. */
static inline const uint8_t *zk_varint_long(const uint8_t *at, const uint8_t *end, int64_t *value) {
    uint64_t raw = 0;
    for (int shift = 0; at < end && shift <= 56; shift += 7) {
        uint8_t byte = *at++;
        raw |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return at;
        }
    }
    return NULL;
}

static inline const uint8_t *zk_varint(const uint8_t *at, const uint8_t *end, int64_t *value) {
    if (at < end) {
        uint8_t byte = *at;
        if (byte < 0x80) {
            *value = (int64_t)(byte >> 1) ^ -(int64_t)(byte & 1);
            return at + 1;
        }
        if (at + 1 < end && at[1] < 0x80) { /* as most sizes of more than 63 bytes */
            *value = (int64_t)((byte & 0x7F) >> 1 | at[1] << 6) ^ -(int64_t)(byte & 1);
            return at + 2;
        }
    }
    return zk_varint_long(at, end, value);
}

/* Returns the byte after a field of `length` bytes (negative: null); NULL if it does not fit. */
static inline const uint8_t *zk_past(const uint8_t *at, const uint8_t *end, int64_t length) {
    if (length <= 0) return at;
    return length <= end - at ? at + length : NULL;
}

/* The header of this entry from the next one on is requested early.  Where it begins is a guess: producers that send much
 * send batches of about one size. */
#define ZK_REQUESTED_ENTRY 4

/* --- iterating over entries --------------------------------------------------------------------------------------- */

/* Reads the header of the entry at `position`.  ZK_FULL: it is complete and valid, and its fields are set. */
static zk_stop zk_next_entry(zk_cursor *c) {
    int64_t total = c->set_bytes, position = c->position;
    if (total - position < ZK_PREFIX_BYTES) return ZK_END;
    const uint8_t *at = c->set + position;
    int64_t offset = zk_i64(at), size = zk_i32(at + 8);
    if (size < ZK_MESSAGE_BYTES_MIN) return ZK_ODD;
    if (total - position <= ZK_MAGIC_AT) return ZK_END;
    int32_t magic = at[ZK_MAGIC_AT];
    if (magic > 2 || (magic == 2 && size < ZK_BATCH_BYTES_MIN)) return ZK_ODD;
    if (size > total - position - ZK_PREFIX_BYTES) return ZK_END;
    if (offset <= c->offset_before || offset > ZK_OFFSET_MAX) return ZK_ODD;
    int64_t last_offset = offset;
    if (magic == 2) {
        int64_t delta = zk_i32(at + 23);
        if (delta < 0 || delta > ZK_OFFSET_MAX - offset) return ZK_ODD;
        last_offset += delta;
    }
    c->end = position + ZK_PREFIX_BYTES + size;
    zk_request(c->set, c->end + ZK_REQUESTED_ENTRY * (c->end - position));
    c->magic = magic;
    c->offset = offset;
    c->last_offset = last_offset;
    return ZK_FULL;
}

/* Moves `position` after the entry; also called after the reference has read it. */
static inline void zk_skip(zk_cursor *c) {
    c->position = c->end;
    c->offset_before = c->last_offset;
    c->inside = ZK_NO_ENTRY;
}

typedef struct {
    int64_t complete_bytes; /* of the complete entries */
    int64_t entries;
    int64_t first_offset; /* in the header of the first entry; -1 without an entry */
    bool is_first_last;   /* the first is a wrapper, whose header has the offset of its last message */
    int64_t next_offset;  /* after the last entry; -1 without an entry */
    bool is_odd;          /* the iteration ended at an entry that the reference must read */
} zk_scan_result;

/* Computes the end of the complete entries, up to the one that covers the last offset before `end_offset`, and the next
 * offset to fetch.  Reads only headers. */
static zk_scan_result zk_scan(const uint8_t *set, int64_t set_bytes, int64_t end_offset) {
    zk_cursor c = {.set = set, .set_bytes = set_bytes, .offset_before = -1};
    zk_scan_result found = {.first_offset = -1, .next_offset = -1};
    zk_stop stop = ZK_END;
    while (c.offset_before + 1 < end_offset && (stop = zk_next_entry(&c)) == ZK_FULL) {
        if (!found.entries++) {
            found.first_offset = c.offset;
            found.is_first_last = c.magic < 2 && set[c.position + ZK_MAGIC_AT + 1] & ZK_CODEC_MASK;
        }
        zk_skip(&c);
        found.complete_bytes = c.position;
        found.next_offset = c.offset_before + 1;
    }
    found.is_odd = stop == ZK_ODD;
    return found;
}

/* --- format 2 ----------------------------------------------------------------------------------------------------- */

static bool zk_headers_fit_slowly(const uint8_t *at, const uint8_t *end, int64_t count) {
    for (; count > 0; count--) {
        int64_t length;
        if (!(at = zk_varint(at, end, &length)) || length < 0 || !(at = zk_past(at, end, length))) return false;
        if (!(at = zk_varint(at, end, &length)) || !(at = zk_past(at, end, length))) return false;
    }
    return at == end;
}

/* Most lengths are below 64: one byte, which is twice the length.  Another byte, or the end, ends this loop. */
static inline bool zk_headers_fit(const uint8_t *at, const uint8_t *end, int64_t count) {
    int64_t size = end - at, next = 0, left = 2 * count;
    for (; left > 0 && next < size && !(at[next] & 0x81); left--) next += 1 + (at[next] >> 1);
    return left ? zk_headers_fit_slowly(at, end, count) : next == size;
}

/* The entry at `position` is a batch with a valid header.  ZK_FULL: its records are next, or none of them is wanted
 * (`inside` shows which of both). */
static zk_stop zk_open_batch(zk_cursor *c) {
    const uint8_t *at = c->set + c->position;
    if (c->check_crcs && c->crc->crc32c(c->crc, at + 21, (size_t)(c->end - c->position - 21)) != zk_u32(at + 17))
        return ZK_ODD;
    int32_t attributes = at[22], count = zk_i32(at + 57);
    if (count < 0) return ZK_ODD;
    bool is_excluded = false;
    while (c->excluded_count && *c->excluded <= c->position) {
        is_excluded = *c->excluded == c->position;
        c->excluded++;
        c->excluded_count--;
    }
    if (attributes & ZK_CONTROL || count == 0 || c->last_offset < c->start_offset || is_excluded) {
        zk_skip(c);
        return ZK_FULL;
    }
    c->left = count;
    c->base_timestamp = zk_i64(at + 27);
    c->append_time = zk_i64(at + 35);
    c->is_append = attributes & ZK_LOG_APPEND_TIME;
    c->record_before = c->offset - 1;
    if (attributes & ZK_CODEC_MASK) {
        c->codec = attributes & ZK_CODEC_MASK;
        c->payload_start = c->position + ZK_BATCH_HEADER_BYTES;
        c->payload_end = c->end;
        c->inside = ZK_PENDING;
        return ZK_PACKED;
    }
    c->body = c->set;
    c->at = c->position + ZK_BATCH_HEADER_BYTES;
    c->body_end = c->end;
    c->inside = ZK_BATCH;
    return ZK_FULL;
}

/* The fields of one record of a batch. */
typedef struct {
    int64_t delta_ms;
    int64_t delta;
    const uint8_t *key_at;
    int64_t key; /* its length; negative: null */
    const uint8_t *value_at;
    int64_t value;
    const uint8_t *headers_at;
    int64_t headers; /* their number */
    const uint8_t *end;
} zk_record;

static inline bool zk_has_valid_headers(const zk_record *record) {
    if (!record->headers) return record->headers_at == record->end;
    if (record->headers < 0 || record->headers > ZK_HEADERS_MAX) return false;
    return zk_headers_fit(record->headers_at, record->end, record->headers);
}

/* Reads the size of the record at `at`, and the fields before its key.  Returns the byte after them, or NULL. */
static const uint8_t *zk_record_head(const uint8_t *at, const uint8_t *behind, zk_record *record) {
    int64_t size;
    const uint8_t *next = zk_varint(at, behind, &size);
    if (!next || size < 1 || size > behind - next) return NULL;
    record->end = next + size;
    if (!(next = zk_varint(next + 1, record->end, &record->delta_ms))) return NULL;
    return zk_varint(next, record->end, &record->delta);
}

/* Reads the other fields. */
static bool zk_record_rest(const uint8_t *next, zk_record *record) {
    const uint8_t *end = record->end;
    if (!(next = zk_varint(next, end, &record->key))) return false;
    record->key_at = next;
    if (!(next = zk_past(next, end, record->key)) || !(next = zk_varint(next, end, &record->value))) return false;
    record->value_at = next;
    if (!(next = zk_past(next, end, record->value)) || !(next = zk_varint(next, end, &record->headers))) return false;
    record->headers_at = next;
    return zk_has_valid_headers(record);
}

/* Reads a varint of one or two bytes that is not negative.  Returns the byte after it; NULL: it is another one. */
static inline const uint8_t *zk_small(const uint8_t *at, int64_t *value) {
    uint32_t byte = at[0];
    if (!(byte & 0x81)) {
        *value = byte >> 1;
        return at + 1;
    }
    uint32_t second = at[1];
    if (byte & 1 || second & 0x80) return NULL;
    *value = (byte & 0x7F) >> 1 | second << 6;
    return at + 2;
}

static inline const uint8_t *zk_small_or_null(const uint8_t *at, int64_t *length) {
    if (*at != 1) return zk_small(at, length);
    *length = -1;
    return at + 1;
}

#define ZK_USUAL_BYTES_MIN 16
#define ZK_USUAL_MS_MAX (INT64_MAX / 2)

/* Reads rows as `zk_batch_rows` does, with two thirds of the instructions: while all numbers of a record are small, in a
 * batch of which each record is wanted.  Returns the first record that it has not read.  `*row` is then the row for that
 * record, and `*before` the offset of the record before it. */
static const uint8_t *zk_usual_rows(
    const zk_cursor *c, const uint8_t *at, const uint8_t *until, zk_row **row, const zk_row *last, int64_t *before) {
    const uint8_t *body = c->body, *behind = body + c->body_end;
    int64_t first = c->offset, delta_before = *before - first, delta_max = c->last_offset - first;
    int64_t base = c->is_append ? c->append_time : c->base_timestamp, has_deltas = c->is_append ? 0 : -1;
    if (behind - until < ZK_USUAL_BYTES_MIN) until = behind - ZK_USUAL_BYTES_MIN + 1;
    zk_row *to = *row;
    while (to < last && at < until) {
        int64_t size, delta_ms, delta, key, value, headers = 0;
        const uint8_t *next = zk_small(at, &size);
        if (!next || size > behind - next) break;
        const uint8_t *end = next + size;
        if (!(next = zk_small(next + 1, &delta_ms)) || !(next = zk_small(next, &delta))) break;
        if (delta <= delta_before || delta > delta_max) break;
        const uint8_t *key_at = zk_small_or_null(next, &key);
        if (!key_at) break;
        int64_t key_bytes = key > 0 ? key : 0;
        if (end - key_at < key_bytes + 2) break;
        const uint8_t *value_at = zk_small_or_null(key_at + key_bytes, &value);
        if (!value_at) break;
        const uint8_t *headers_at = end;
        int64_t left = end - value_at - (value > 0 ? value : 0);
        if (left != 1 || end[-1]) {
            if (left < 2 || !(headers_at = zk_small(end - left, &headers))) break;
            if (!zk_headers_fit(headers_at, end, headers)) break;
        }
        to->offset = first + delta;
        to->timestamp = base + (delta_ms & has_deltas);
        to->key_start = (int32_t)(key_at - body);
        to->key_length = (int32_t)key;
        to->value_start = (int32_t)(value_at - body);
        to->value_length = (int32_t)value;
        to->headers_start = (int32_t)(headers_at - body);
        to->headers_end = (int32_t)(end - body);
        to->header_count = (int32_t)headers;
        to->timestamp_type = c->is_append;
        to++;
        delta_before = delta;
        at = end;
    }
    *row = to;
    *before = first + delta_before;
    return at;
}

/* Reads up to `most` records of the open batch that begin before `near`.  Returns their number.  Sets `*stop` to ZK_ODD
 * if the next record is not accepted, to ZK_END if it is at the end offset; else `*stop` is unchanged. */
static int64_t zk_batch_rows(zk_cursor *c, zk_row *row, int64_t most, int64_t near, zk_stop *stop) {
    const uint8_t *body = c->body, *at = body + c->at, *behind = body + c->body_end;
    const uint8_t *until = near < c->body_end ? body + near : behind;
    const zk_row *first = row, *last = row + most;
    int64_t left = c->left, before = c->record_before, base = c->base_timestamp;
    bool are_all_wanted = c->start_offset <= c->offset && c->last_offset < c->end_offset, is_end = false;
    bool is_usual = are_all_wanted && base > -ZK_USUAL_MS_MAX && base < ZK_USUAL_MS_MAX; /* no timestamp can overflow */
    for (;;) {
        if (is_usual) {
            const zk_row *from = row;
            at = zk_usual_rows(c, at, until, &row, left < last - row ? row + left : last, &before);
            left -= row - from;
        }
        if (!left || row == last || at >= until) break;
        zk_record record;
        const uint8_t *rest = zk_record_head(at, behind, &record);
        if (!rest) goto odd;
        if (record.delta < 0 || record.delta > c->last_offset - c->offset) goto odd;
        int64_t offset = c->offset + record.delta;
        if (offset <= before) goto odd;
        if (offset >= c->end_offset) {
            is_end = true;
            break;
        }
        if (offset >= c->start_offset) {
            if (!zk_record_rest(rest, &record)) goto odd;
            int64_t timestamp = c->append_time, delta_ms = record.delta_ms;
            if (!c->is_append) {
                if (delta_ms >= 0 ? base > INT64_MAX - delta_ms : base < INT64_MIN - delta_ms) goto odd;
                timestamp = base + delta_ms;
            }
            row->offset = offset;
            row->timestamp = timestamp;
            row->key_start = (int32_t)(record.key_at - body);
            row->key_length = record.key < 0 ? -1 : (int32_t)record.key;
            row->value_start = (int32_t)(record.value_at - body);
            row->value_length = record.value < 0 ? -1 : (int32_t)record.value;
            row->headers_start = (int32_t)(record.headers_at - body);
            row->headers_end = (int32_t)(record.end - body);
            row->header_count = (int32_t)record.headers;
            row->timestamp_type = c->is_append;
            row++;
        }
        before = offset;
        at = record.end;
        left--;
    }
    c->left = left;
    c->record_before = before;
    c->at = at - body;
    if (is_end) *stop = ZK_END;
    /* Too few records, or too many bytes. */
    if (left ? at == behind : at != behind) *stop = ZK_ODD;
    return row - first;
odd:
    c->left = left;
    c->record_before = before;
    c->at = at - body;
    *stop = ZK_ODD;
    return row - first;
}

/* --- formats 0 and 1 ---------------------------------------------------------------------------------------------- */

/* Reads the fields of the message in body[start:end], except offset and timestamp type.  Returns false if it is not
 * accepted. */
static bool zk_message_row(const uint8_t *body, int64_t start, int64_t end, int32_t magic, zk_row *row) {
    const uint8_t *at = body + start + ZK_MAGIC_AT + 2, *behind = body + end;
    int64_t timestamp = -1;
    if (magic == 1) {
        if (behind - at < 8) return false;
        timestamp = zk_i64(at);
        at += 8;
    }
    if (behind - at < 8) return false;
    int32_t key = zk_i32(at);
    at += 4;
    row->timestamp = timestamp;
    row->key_start = (int32_t)(at - body);
    row->key_length = key < 0 ? -1 : key;
    if (!(at = zk_past(at, behind, key)) || behind - at < 4) return false;
    int32_t value = zk_i32(at);
    at += 4;
    row->value_start = (int32_t)(at - body);
    row->value_length = value < 0 ? -1 : value;
    row->headers_start = row->headers_end = row->header_count = 0;
    return zk_past(at, behind, value) != NULL;
}

static inline bool zk_message_crc_fits(const zk_cursor *c, const uint8_t *at, int64_t bytes) {
    return !c->check_crcs || c->crc->crc32(c->crc, at + ZK_MAGIC_AT, (size_t)(bytes - ZK_MAGIC_AT)) == zk_u32(at + 12);
}

/* The entry at `position` is a message with a valid header.  ZK_FULL: it was read; `*is_row`: whether `row` was filled. */
static zk_stop zk_read_message(zk_cursor *c, zk_row *row, bool *is_row) {
    const uint8_t *at = c->set + c->position;
    *is_row = false;
    if (!zk_message_crc_fits(c, at, c->end - c->position)) return ZK_ODD;
    if (c->offset < c->start_offset) {
        zk_skip(c);
        return ZK_FULL;
    }
    if (!zk_message_row(c->set, c->position, c->end, c->magic, row)) return ZK_ODD;
    int32_t attributes = at[ZK_MAGIC_AT + 1];
    bool is_append = c->magic == 1 && attributes & ZK_LOG_APPEND_TIME;
    if (attributes & ZK_CODEC_MASK) {
        if (row->value_length < 0) return ZK_ODD;
        c->codec = attributes & ZK_CODEC_MASK;
        c->payload_start = row->value_start;
        c->payload_end = row->value_start + (int64_t)row->value_length;
        c->append_time = row->timestamp;
        c->is_append = is_append;
        c->record_before = c->offset_before;
        c->inside = ZK_PENDING;
        return ZK_PACKED;
    }
    row->offset = c->offset;
    row->timestamp_type = c->magic == 0 ? -1 : is_append;
    *is_row = true;
    zk_skip(c);
    return ZK_FULL;
}

/* Computes `shift`, the number to add to the offsets in a wrapper.  Returns false if the reference must read the entry. */
static bool zk_find_shift(zk_cursor *c) {
    int64_t at = 0, total = c->body_end, first = -1, last = -1;
    while (at < total) {
        if (total - at < ZK_PREFIX_BYTES) return false;
        int64_t offset = zk_i64(c->body + at), size = zk_i32(c->body + at + 8);
        if (size < ZK_MESSAGE_BYTES_MIN || size > total - at - ZK_PREFIX_BYTES || offset <= last) return false;
        if (first < 0) first = offset;
        last = offset;
        at += ZK_PREFIX_BYTES + size;
    }
    if (last < 0) return false;
    c->shift = c->magic == 1 ? c->offset - last : 0;
    return c->shift >= 0 && last + c->shift <= c->offset && first + c->shift > c->offset_before;
}

/* The same for messages of the open wrapper. */
static int64_t zk_wrapper_rows(zk_cursor *c, zk_row *row, int64_t most, int64_t near, zk_stop *stop) {
    const zk_row *first = row, *last = row + most;
    int64_t until = near < c->body_end ? near : c->body_end;
    while (c->at < until && row < last) {
        /* The bytes may have changed since zk_find_shift. */
        const uint8_t *at = c->body + c->at;
        if (c->body_end - c->at < ZK_PREFIX_BYTES + ZK_MESSAGE_BYTES_MIN) goto odd;
        int64_t offset = zk_i64(at) + c->shift, bytes = ZK_PREFIX_BYTES + (int64_t)zk_i32(at + 8);
        if (bytes < ZK_PREFIX_BYTES + ZK_MESSAGE_BYTES_MIN || bytes > c->body_end - c->at) goto odd;
        if (offset >= c->end_offset) {
            *stop = ZK_END;
            break;
        }
        if (offset >= c->start_offset) {
            int32_t magic = at[ZK_MAGIC_AT];
            if (!zk_message_crc_fits(c, at, bytes) || magic > 1 || at[ZK_MAGIC_AT + 1] & ZK_CODEC_MASK) goto odd;
            if (!zk_message_row(c->body, c->at, c->at + bytes, magic, row)) goto odd;
            row->offset = offset;
            row->timestamp_type = magic == 0 ? -1 : c->is_append;
            if (magic == 1 && c->is_append) row->timestamp = c->append_time;
            row++;
        }
        c->record_before = offset;
        c->at += bytes;
    }
    return row - first;
odd:
    *stop = ZK_ODD;
    return row - first;
}

/* --- the two calls ------------------------------------------------------------------------------------------------ */

/* Enters the decompressed payload of the entry at `position`.  Returns false if the reference must read the entry. */
static bool zk_enter(zk_cursor *c, const uint8_t *body, int64_t body_bytes) {
    if (body_bytes > INT32_MAX) return false;
    c->body = body;
    c->body_end = body_bytes;
    c->at = 0;
    if (c->magic == 2) {
        c->inside = ZK_BATCH;
        return true;
    }
    if (!zk_find_shift(c)) return false;
    c->inside = ZK_WRAPPER;
    return true;
}

/* Reads up to `most` rows, and none that begins more than `max_bytes` bytes after the first.  All of them belong to one
 * buffer: to the decompressed payload if the cursor is in one, else to the record set. */
static zk_stop zk_read(zk_cursor *c, zk_row *rows, int64_t most, int64_t max_bytes, int64_t *count) {
    int64_t filled = 0, from = c->inside == ZK_NO_ENTRY ? c->position : c->at;
    int64_t near = max_bytes < INT64_MAX - from ? from + max_bytes : INT64_MAX;
    *count = 0;
    for (;;) {
        if (c->inside == ZK_PENDING) return ZK_PACKED;
        if (c->inside == ZK_BATCH || c->inside == ZK_WRAPPER) {
            zk_stop stop = ZK_FULL;
            bool is_expanded = c->body != c->set;
            if (c->inside == ZK_BATCH)
                filled += zk_batch_rows(c, rows + filled, most - filled, near, &stop);
            else
                filled += zk_wrapper_rows(c, rows + filled, most - filled, near, &stop);
            *count = filled;
            if (stop != ZK_FULL || (c->inside == ZK_BATCH ? c->left : c->at < c->body_end)) return stop;
            zk_skip(c);
            if (is_expanded) return ZK_LEFT;
        }
        if (filled == most || c->position >= near) return ZK_FULL;
        if (c->offset_before + 1 >= c->end_offset) return ZK_END;
        zk_stop stop = zk_next_entry(c);
        if (stop != ZK_FULL) return stop;
        if (c->magic == 2) {
            if (c->offset >= c->end_offset) return ZK_END;
            stop = zk_open_batch(c);
        } else {
            bool is_row;
            if (c->offset >= c->end_offset && !(c->set[c->position + ZK_MAGIC_AT + 1] & ZK_CODEC_MASK)) return ZK_END;
            stop = zk_read_message(c, rows + filled, &is_row);
            if (is_row) *count = ++filled;
        }
        if (stop != ZK_FULL) return stop;
    }
}

#endif
