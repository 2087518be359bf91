/* A fuzz target for the record decoder (libFuzzer's interface).
 *
 * The first bytes choose the options, the rest is the record set.  Besides what the sanitizers find, it checks what
 * callers rely on: rows lie inside of their buffer, offsets increase, every call makes progress, and a table of another
 * size gives the same rows.  The payload of a compressed entry is entered as if it had been decompressed.  The same
 * bytes are read as the answer to a Fetch, too. */

#include <stdio.h>
#include <stdlib.h>

#include "../../zkconsumer/wire/fetch_core.h"
#include "../../zkconsumer/wire/records_core.h"

#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                         \
        }                                                                    \
    } while (0)

#define TABLE_ROWS 64

typedef struct {
    int64_t rows;
    uint64_t hash;
} outcome;

static uint64_t mixed(uint64_t hash, int64_t number) {
    return (hash ^ (uint64_t)number) * 0x9E3779B97F4A7C15ull + (hash >> 29);
}

static outcome read_all(const uint8_t *set, size_t bytes, const uint8_t *options, const zk_crc *crc, int64_t table_rows) {
    zk_row rows[TABLE_ROWS];
    zk_cursor cursor = {
        .set = set,
        .set_bytes = (int64_t)bytes,
        .start_offset = options[0] & 1 ? options[1] : 0,
        .end_offset = options[0] & 2 ? options[2] : ZK_NO_END,
        .check_crcs = (options[0] & 4) != 0,
        .crc = crc,
        .offset_before = -1,
    };
    outcome found = {0};
    int64_t offset_before = -1, calls = 0;
    for (;;) {
        /* As `Cursor.read` of _records.c: the rows belong to what was entered, or to the set. */
        bool is_expanded = (cursor.inside == ZK_BATCH || cursor.inside == ZK_WRAPPER) && cursor.body != set;
        int64_t total = is_expanded ? cursor.body_end : (int64_t)bytes, count = 0;
        int64_t before = cursor.position + cursor.at;
        zk_stop stop = zk_read(&cursor, rows, table_rows, options[3] ? options[3] * 8 : INT64_MAX, &count);
        CHECK(count >= 0 && count <= table_rows);
        for (int64_t index = 0; index < count; index++) {
            const zk_row *row = rows + index;
            CHECK(row->offset > offset_before);
            CHECK(row->offset >= cursor.start_offset && row->offset < cursor.end_offset);
            offset_before = row->offset;
            CHECK(row->key_start >= 0 && row->value_start >= 0);
            CHECK(row->key_length >= -1 && row->key_start + (row->key_length > 0 ? row->key_length : 0) <= total);
            CHECK(row->value_length >= -1 && row->value_start + (row->value_length > 0 ? row->value_length : 0) <= total);
            CHECK(0 <= row->headers_start && row->headers_start <= row->headers_end && row->headers_end <= total);
            CHECK(row->header_count >= 0 && row->header_count <= ZK_HEADERS_MAX);
            found.hash = mixed(mixed(found.hash, row->offset), row->timestamp);
            found.hash = mixed(mixed(found.hash, row->key_length), row->value_length);
            found.hash = mixed(mixed(found.hash, row->header_count), row->timestamp_type);
        }
        found.rows += count;
        CHECK(calls++ < 4 * (int64_t)bytes + 16);
        if (stop == ZK_END) break;
        if (stop == ZK_ODD) {
            /* The header of the entry may be what is odd: then nothing can be skipped. */
            if (cursor.inside == ZK_NO_ENTRY || cursor.end <= cursor.position) break;
            zk_skip(&cursor);
        } else if (stop == ZK_PACKED) {
            CHECK(cursor.payload_start >= 0 && cursor.payload_start <= cursor.payload_end);
            CHECK(cursor.payload_end <= (int64_t)bytes);
            if (!zk_enter(&cursor, set + cursor.payload_start, cursor.payload_end - cursor.payload_start))
                zk_skip(&cursor);
        } else if (stop == ZK_FULL) {
            CHECK(count || cursor.position + cursor.at != before || options[3]);
        }
    }
    return found;
}

/* The same bytes as the answer to a Fetch: its record sets lie inside of it, in order, and it ends. */
static void read_answer(const uint8_t *data, size_t bytes, int32_t version) {
    zk_fetch_answer answer;
    zk_fetched row;
    int64_t before = 0, rows = 0;
    if (!zk_fetch_open(&answer, data, 0, (int64_t)bytes, version)) return;
    while (zk_fetch_next(&answer, &row) == ZK_FETCHED_ROW) {
        CHECK(0 <= row.topic_start && row.topic_start <= row.topic_end && row.topic_end <= (int64_t)bytes);
        if (version >= ZK_FETCH_TOPIC_IDS_FROM) CHECK(row.topic_end - row.topic_start == ZK_TOPIC_ID_BYTES);
        if (version < 11) CHECK(row.preferred_read_replica == -1);
        if (version < 5) CHECK(row.log_start_offset == -1);
        CHECK(row.aborted_count >= 0);
        if (row.aborted_count) {
            CHECK(before < row.aborted_start);
            before = row.aborted_start + row.aborted_count * row.aborted_stride;
            CHECK(before <= (int64_t)bytes);
        }
        if (row.records_start >= 0) {
            CHECK(before < row.records_start && row.records_start <= row.records_end);
            CHECK(row.records_end <= (int64_t)bytes);
            before = row.records_end;
        }
        CHECK(rows++ < (int64_t)bytes);
    }
    CHECK(answer.at >= data && answer.at <= data + bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static zk_crc_tables tables;
    static zk_crc crcs[ZK_CRC_USES];
    static bool is_made;
    if (!is_made) {
        zk_crc_fill_tables(&tables);
        for (int use = 0; use < ZK_CRC_USES; use++) zk_crc_init(&crcs[use], &tables, (zk_crc_use)use);
        is_made = true;
    }
    if (size < 4) return 0;
    const uint8_t *options = data, *set = data + 4;
    size_t bytes = size - 4;
    /* In memory of exactly this size, so that a byte behind it is noticed. */
    uint8_t *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, set, bytes);
    for (int use = 1; use < ZK_CRC_USES; use++) {
        CHECK(crcs[use].crc32(&crcs[use], copy, bytes) == crcs->crc32(crcs, copy, bytes));
        CHECK(crcs[use].crc32c(&crcs[use], copy, bytes) == crcs->crc32c(crcs, copy, bytes));
    }
    read_answer(copy, bytes, options[0] % (ZK_FETCH_VERSION_MAX + 2));
    zk_scan_result scanned = zk_scan(copy, (int64_t)bytes, ZK_NO_END);
    CHECK(scanned.complete_bytes <= (int64_t)bytes);
    outcome whole = read_all(copy, bytes, options, &crcs[ZK_CRC_ALL], TABLE_ROWS);
    outcome single = read_all(copy, bytes, options, &crcs[ZK_CRC_TABLES], 1);
    CHECK(whole.rows == single.rows && whole.hash == single.hash);
    free(copy);
    return 0;
}

#ifdef WITHOUT_LIBFUZZER
/* Runs files, for a compiler that has no libFuzzer: the corpus, and inputs that failed. */
int main(int count, char **names) {
    for (int each = 1; each < count; each++) {
        FILE *file = fopen(names[each], "rb");
        if (!file) return 2;
        static uint8_t data[1 << 20];
        size_t bytes = fread(data, 1, sizeof data, file);
        fclose(file);
        LLVMFuzzerTestOneInput(data, bytes);
    }
    return 0;
}
#endif
