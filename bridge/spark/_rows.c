/* The loops over records that numpy needs many passes for, each in one.  Called by bridge/spark/compiled.py alone,
 * which says what the arrays hold.
 *
 * Nothing is believed that a broker sent: whatever does not fit together ends in False, nothing is read or written
 * outside of the buffers, and the Python reader has the last word on what it means.  No state; no Python object is
 * touched inside of a loop. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* --- numbers as Kafka writes them --------------------------------------------------------------------------------- */

static uint32_t u32_at(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int64_t i32_at(const uint8_t *at) { return (int32_t)u32_at(at); }

static int64_t i64_at(const uint8_t *at) { return (int64_t)((uint64_t)u32_at(at) << 32 | u32_at(at + 4)); }

#define LAST_SHIFT 56

/* A zigzag varint: what follows it, or NULL where it is cut off or has more than nine bytes. */
static const uint8_t *varint(const uint8_t *at, const uint8_t *end, int64_t *value) {
    uint64_t raw = 0;
    for (int shift = 0; at < end && shift <= LAST_SHIFT; shift += 7) {
        uint8_t byte = *at++;
        raw |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return at;
        }
    }
    return NULL;
}

/* Past a field of so many bytes (null, when that is negative), or NULL where there are not so many. */
static const uint8_t *past(const uint8_t *at, const uint8_t *end, int64_t length) {
    if (length <= 0) return at;
    return length <= end - at ? at + length : NULL;
}

/* --- format 2 ----------------------------------------------------------------------------------------------------- */

#define TOO_LARGE ((int64_t)1 << 61)
#define OFFSET_DELTA_END ((int64_t)1 << 31)

/* What is said of a record, in rows of so many numbers as there are records: `Number` of bridge/spark/spans.py. */
enum {
    OFFSET,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    KEY_START,
    KEY_LENGTH,
    VALUE_START,
    VALUE_LENGTH,
    COLUMN_NUMBERS,
    HEADERS_START = COLUMN_NUMBERS,
    HEADER_COUNT,
    END,
    NUMBERS
};

/* What is said of a batch: `Fact` of bridge/spark/batch_runs.py. */
enum {
    START,
    END_OF_BATCH,
    RECORDS_START,
    RECORDS_END,
    COUNT,
    FIRST_OFFSET,
    LAST_OFFSET,
    ATTRIBUTES,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    CRC,
    FACTS
};

#define LOG_APPEND_TIME 0x08

/* The records of one batch, as the rows from `row` on; `rows` is how many there are of all batches. */
static bool batch_rows(
    const uint8_t *data, int64_t total, const int64_t *batch, int64_t rows, int64_t row, int64_t *out) {
    if (batch[RECORDS_START] < 0 || batch[RECORDS_START] > batch[RECORDS_END]) return false;
    if (batch[RECORDS_END] > total) return false;
    if (batch[FIRST_OFFSET] < 0 || batch[FIRST_OFFSET] > TOO_LARGE) return false;
    if (batch[BASE_TIMESTAMP] > TOO_LARGE || batch[BASE_TIMESTAMP] < -TOO_LARGE) return false;
    const uint8_t *at = data + batch[RECORDS_START], *behind = data + batch[RECORDS_END];
    bool is_append = batch[ATTRIBUTES] & LOG_APPEND_TIME;
    int64_t offset_before = batch[FIRST_OFFSET] - 1;
    for (int64_t last = row + batch[COUNT]; row < last; row++) {
        int64_t size, delta_ms, delta, key, value, headers;
        if (!(at = varint(at, behind, &size)) || size < 1 || size > behind - at) return false;
        const uint8_t *end = at + size;
        if (!(at = varint(at + 1, end, &delta_ms)) || delta_ms >= TOO_LARGE || delta_ms <= -TOO_LARGE) return false;
        if (!(at = varint(at, end, &delta)) || delta < 0 || delta >= OFFSET_DELTA_END) return false;
        if (!(at = varint(at, end, &key))) return false;
        const uint8_t *key_at = at;
        if (!(at = past(at, end, key)) || !(at = varint(at, end, &value))) return false;
        const uint8_t *value_at = at;
        if (!(at = past(at, end, value)) || !(at = varint(at, end, &headers))) return false;
        if (headers < 0 || headers > total || (headers == 0 && at != end)) return false;
        int64_t offset = batch[FIRST_OFFSET] + delta;
        if (offset <= offset_before || offset > batch[LAST_OFFSET]) return false;
        offset_before = offset;
        out[OFFSET * rows + row] = offset;
        out[TIMESTAMP * rows + row] = is_append ? batch[MAX_TIMESTAMP] : batch[BASE_TIMESTAMP] + delta_ms;
        out[TIMESTAMP_TYPE * rows + row] = is_append;
        out[KEY_START * rows + row] = key_at - data;
        out[KEY_LENGTH * rows + row] = key;
        out[VALUE_START * rows + row] = value_at - data;
        out[VALUE_LENGTH * rows + row] = value;
        out[HEADERS_START * rows + row] = at - data;
        out[HEADER_COUNT * rows + row] = headers;
        out[END * rows + row] = end - data;
        at = end;
    }
    return at == behind;
}

static PyObject *rows_of_batches(PyObject *module, PyObject *args) {
    Py_buffer data, batches, out;
    if (!PyArg_ParseTuple(args, "y*y*w*", &data, &batches, &out)) return NULL;
    const int64_t *batch = batches.buf, *last = batch + batches.len / (Py_ssize_t)sizeof(int64_t);
    int64_t rows = out.len / (Py_ssize_t)(NUMBERS * sizeof(int64_t)), row = 0;
    bool fits = true;
    for (; fits && last - batch >= FACTS; batch += FACTS) {
        fits = batch[COUNT] >= 0 && batch[COUNT] <= rows - row;
        fits = fits && batch_rows(data.buf, data.len, batch, rows, row, out.buf);
        row += fits ? batch[COUNT] : 0;
    }
    fits = fits && row == rows;
    PyBuffer_Release(&data);
    PyBuffer_Release(&batches);
    PyBuffer_Release(&out);
    return PyBool_FromLong(fits);
}

/* The headers of all records, one after another: where name and value of each begin, and how long they are. */
static bool headers_of(
    const uint8_t *data, const uint8_t *at, const uint8_t *end, int64_t *out, int64_t count, int64_t all) {
    for (int64_t header = 0; header < count; header++, out++) {
        int64_t name, value;
        if (!(at = varint(at, end, &name)) || name < 0) return false;
        out[0] = at - data;
        out[all] = name;
        if (!(at = past(at, end, name)) || !(at = varint(at, end, &value))) return false;
        out[2 * all] = at - data;
        out[3 * all] = value;
        if (!(at = past(at, end, value))) return false;
    }
    return at == end;
}

static PyObject *headers(PyObject *module, PyObject *args) {
    Py_buffer data, starts, ends, counts, out;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*", &data, &starts, &ends, &counts, &out)) return NULL;
    int64_t rows = starts.len / (Py_ssize_t)sizeof(int64_t), all = out.len / (Py_ssize_t)(4 * sizeof(int64_t)), header = 0;
    bool fits = ends.len == starts.len && counts.len == starts.len;
    for (int64_t row = 0; fits && row < rows; row++) {
        int64_t start = ((const int64_t *)starts.buf)[row], end = ((const int64_t *)ends.buf)[row];
        int64_t count = ((const int64_t *)counts.buf)[row];
        const uint8_t *raw = data.buf;
        fits = 0 <= start && start <= end && end <= data.len && 0 <= count && count <= all - header;
        fits = fits && headers_of(raw, raw + start, raw + end, (int64_t *)out.buf + header, count, all);
        header += fits ? count : 0;
    }
    fits = fits && header == all;
    PyBuffer_Release(&data);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&counts);
    PyBuffer_Release(&out);
    return PyBool_FromLong(fits);
}

/* --- what an entry of any format begins with ---------------------------------------------------------------------- */

#define PREFIX_BYTES 12
#define SIZE_AT 8
#define MAGIC_AT 16
#define BATCH_HEADER_BYTES 61
#define BATCH_BYTES_MIN (BATCH_HEADER_BYTES - PREFIX_BYTES)
#define MESSAGE_HEAD_BYTES 18
#define MESSAGE_BYTES_MIN 14
#define CODEC_MASK 0x07

/* Entries from `position` on: where they begin, and where the last one ends; gives how many numbers these are.
 * `codec` -1: batches, which have it elsewhere; otherwise messages with this one. */
static PyObject *bounds(PyObject *module, PyObject *args) {
    Py_buffer data, out;
    long long position, magic, codec;
    if (!PyArg_ParseTuple(args, "y*LLLw*", &data, &position, &magic, &codec, &out)) return NULL;
    const uint8_t *raw = data.buf;
    int64_t *found = out.buf, total = data.len, most = out.len / (Py_ssize_t)sizeof(int64_t), number = 0;
    int64_t head = codec < 0 ? BATCH_HEADER_BYTES : MESSAGE_HEAD_BYTES;
    int64_t least = codec < 0 ? BATCH_BYTES_MIN : MESSAGE_BYTES_MIN;
    if (most && position >= 0) found[number++] = position;
    while (number && number < most && position <= total - head) {
        const uint8_t *at = raw + position;
        int64_t size = i32_at(at + SIZE_AT);
        if (at[MAGIC_AT] != magic || (codec >= 0 && (at[MAGIC_AT + 1] & CODEC_MASK) != codec)) break;
        if (size < least || size > total - position - PREFIX_BYTES) break;
        position += PREFIX_BYTES + size;
        found[number++] = position;
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&out);
    return PyLong_FromLongLong(number);
}

/* --- formats 0 and 1 ---------------------------------------------------------------------------------------------- */

#define CRC_AT 12
#define COVERED_AT 16

#define SLICES 16
static uint32_t crc_tables[SLICES][256];

static void make_crc_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        crc_tables[0][byte] = crc;
    }
    for (int slice = 1; slice < SLICES; slice++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = crc_tables[slice - 1][byte];
            crc_tables[slice][byte] = before >> 8 ^ crc_tables[0][before & 0xFF];
        }
}

/* CRC-32 of zlib, sixteen bytes at a time (Kounavis and Berry). */
static uint32_t crc32_of(const uint8_t *at, const uint8_t *end) {
    uint32_t crc = 0xFFFFFFFFu;
    for (; end - at >= SLICES; at += SLICES) {
        uint8_t block[SLICES];
        memcpy(block, at, SLICES);
        for (int byte = 0; byte < 4; byte++) block[byte] ^= (uint8_t)(crc >> 8 * byte);
        crc = 0;
        for (int byte = 0; byte < SLICES; byte++) crc ^= crc_tables[SLICES - 1 - byte][block[byte]];
    }
    for (; at < end; at++) crc = crc >> 8 ^ crc_tables[0][(crc ^ *at) & 0xFF];
    return ~crc;
}

/* All but offset and type of the timestamp. */
static bool message_row(
    const uint8_t *data, const uint8_t *start, const uint8_t *end, int magic, bool check, int64_t *out, int64_t rows) {
    int64_t head = magic == 0 ? MESSAGE_HEAD_BYTES : MESSAGE_HEAD_BYTES + 8;
    if (end - start < head + 8) return false;
    if (check && crc32_of(start + COVERED_AT, end) != u32_at(start + CRC_AT)) return false;
    const uint8_t *at = start + head + 4;
    int64_t key = i32_at(start + head);
    out[TIMESTAMP * rows] = magic == 0 ? -1 : i64_at(start + MESSAGE_HEAD_BYTES);
    out[KEY_START * rows] = at - data;
    out[KEY_LENGTH * rows] = key;
    if (!(at = past(at, end, key)) || end - at < 4) return false;
    int64_t value = i32_at(at);
    at += 4;
    out[VALUE_START * rows] = at - data;
    out[VALUE_LENGTH * rows] = value;
    return past(at, end, value) != NULL;
}

static PyObject *rows_of_messages(PyObject *module, PyObject *args) {
    Py_buffer data, starts, ends, out;
    int magic, check;
    bool fits = true;
    if (!PyArg_ParseTuple(args, "y*y*y*ipw*", &data, &starts, &ends, &magic, &check, &out)) return NULL;
    int64_t rows = out.len / (Py_ssize_t)(COLUMN_NUMBERS * sizeof(int64_t));
    fits = starts.len == rows * (Py_ssize_t)sizeof(int64_t) && ends.len == starts.len;
    for (int64_t row = 0; fits && row < rows; row++) {
        int64_t start = ((const int64_t *)starts.buf)[row], end = ((const int64_t *)ends.buf)[row];
        const uint8_t *raw = data.buf;
        fits = 0 <= start && start <= end && end <= data.len;
        fits = fits && message_row(raw, raw + start, raw + end, magic, check, (int64_t *)out.buf + row, rows);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&out);
    return PyBool_FromLong(fits);
}

/* --- fields behind each other, as Arrow has them ------------------------------------------------------------------ */

/* How much the fields have together; -1 where one lies outside of `total`, or they are more than 32 bits count. */
static int64_t gathered_bytes(
    const int64_t *start, const int64_t *length, int64_t rows, int64_t total, int64_t *nulls) {
    int64_t sum = 0;
    for (int64_t row = 0; row < rows; row++) {
        if (length[row] < 0) {
            *nulls += 1;
            continue;
        }
        if (start[row] < 0 || start[row] > total || length[row] > total - start[row]) return -1;
        if ((sum += length[row]) > INT32_MAX) return -1;
    }
    return sum;
}

/* (where each field ends behind a 0, the fields, a bit for each that is not null or None, how many are null) */
static PyObject *gathered(
    const uint8_t *data, int64_t total, const int64_t *start, const int64_t *length, int64_t rows) {
    PyObject *ends = NULL, *bytes = NULL, *valid = NULL, *found = NULL;
    int64_t nulls = 0, sum = gathered_bytes(start, length, rows, total, &nulls);
    if (sum < 0) {
        PyErr_SetString(PyExc_ValueError, "a field outside of the buffer, or more than 2 GiB of them");
        return NULL;
    }
    ends = PyBytes_FromStringAndSize(NULL, (rows + 1) * (Py_ssize_t)sizeof(int32_t));
    bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)sum);
    valid = nulls ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((rows + 7) / 8)) : Py_NewRef(Py_None);
    if (ends && bytes && valid) {
        uint8_t *to = (uint8_t *)PyBytes_AsString(bytes);
        char *end = PyBytes_AsString(ends), *bits = nulls ? PyBytes_AsString(valid) : NULL;
        if (bits) memset(bits, 0, (size_t)((rows + 7) / 8));
        int32_t filled = 0;
        memcpy(end, &filled, sizeof filled);
        for (int64_t row = 0; row < rows; row++) {
            if (length[row] >= 0) {
                memcpy(to + filled, data + start[row], (size_t)length[row]);
                filled += (int32_t)length[row];
                if (bits) bits[row / 8] |= (char)(1 << row % 8);
            }
            memcpy(end + (row + 1) * (int64_t)sizeof filled, &filled, sizeof filled);
        }
        found = Py_BuildValue("OOOL", ends, bytes, valid, (long long)nulls);
    }
    Py_XDECREF(ends);
    Py_XDECREF(bytes);
    Py_XDECREF(valid);
    return found;
}

static PyObject *gather(PyObject *module, PyObject *args) {
    Py_buffer data, starts, lengths;
    PyObject *found = NULL;
    if (!PyArg_ParseTuple(args, "y*y*y*", &data, &starts, &lengths)) return NULL;
    if (starts.len == lengths.len)
        found = gathered(data.buf, data.len, starts.buf, lengths.buf, starts.len / (Py_ssize_t)sizeof(int64_t));
    else
        PyErr_SetString(PyExc_ValueError, "not as many lengths as fields");
    PyBuffer_Release(&data);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&lengths);
    return found;
}

/* --- all that Arrow needs of a batch ------------------------------------------------------------------------------ */

#define MS_MAX (INT64_MAX / 1000)

/* Milliseconds as microseconds; what does not fit into 64 bits is put at the end of them. */
static PyObject *micros(const int64_t *ms, int64_t rows) {
    PyObject *made = PyBytes_FromStringAndSize(NULL, rows * (Py_ssize_t)sizeof(int64_t));
    char *to = made ? PyBytes_AsString(made) : NULL;
    for (int64_t row = 0; to && row < rows; row++) {
        int64_t us = (ms[row] > MS_MAX ? MS_MAX : ms[row] < -MS_MAX ? -MS_MAX : ms[row]) * 1000;
        memcpy(to + row * (int64_t)sizeof us, &us, sizeof us);
    }
    return made;
}

static PyObject *in_32_bits(const int64_t *numbers, int64_t rows) {
    PyObject *made = PyBytes_FromStringAndSize(NULL, rows * (Py_ssize_t)sizeof(int32_t));
    char *to = made ? PyBytes_AsString(made) : NULL;
    for (int64_t row = 0; to && row < rows; row++) {
        int32_t number = (int32_t)numbers[row];
        memcpy(to + row * (int64_t)sizeof number, &number, sizeof number);
    }
    return made;
}

static PyObject *field(const Py_buffer *data, const int64_t *numbers, int start, int64_t rows, int is_wanted) {
    if (!is_wanted) return Py_NewRef(Py_None);
    /* The row of the lengths stands behind that of the starts. */
    return gathered(data->buf, data->len, numbers + start * rows, numbers + (start + 1) * rows, rows);
}

static PyObject *buffers(PyObject *module, PyObject *args) {
    Py_buffer data, numbers;
    long long rows;
    int with_key, with_value;
    PyObject *made[5] = {NULL}, *found = NULL;
    if (!PyArg_ParseTuple(args, "y*y*Lpp", &data, &numbers, &rows, &with_key, &with_value)) return NULL;
    const int64_t *number = numbers.buf;
    if (rows < 0 || rows > numbers.len / (Py_ssize_t)(COLUMN_NUMBERS * sizeof(int64_t))) {
        PyErr_SetString(PyExc_ValueError, "not as many numbers as rows");
    } else {
        made[0] = PyBytes_FromStringAndSize((const char *)numbers.buf, rows * (Py_ssize_t)sizeof(int64_t));
        made[1] = micros(number + TIMESTAMP * rows, rows);
        made[2] = in_32_bits(number + TIMESTAMP_TYPE * rows, rows);
        made[3] = field(&data, number, KEY_START, rows, with_key);
        made[4] = made[3] ? field(&data, number, VALUE_START, rows, with_value) : NULL;
        if (made[0] && made[1] && made[2] && made[3] && made[4])
            found = Py_BuildValue("OOOOO", made[0], made[1], made[2], made[3], made[4]);
    }
    for (int each = 0; each < 5; each++) Py_XDECREF(made[each]);
    PyBuffer_Release(&data);
    PyBuffer_Release(&numbers);
    return found;
}

/* --- the module --------------------------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"bounds", bounds, METH_VARARGS, NULL},
    {"buffers", buffers, METH_VARARGS, NULL},
    {"gather", gather, METH_VARARGS, NULL},
    {"headers", headers, METH_VARARGS, NULL},
    {"rows_of_batches", rows_of_batches, METH_VARARGS, NULL},
    {"rows_of_messages", rows_of_messages, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_rows", .m_size = 0, .m_methods = methods};

PyMODINIT_FUNC PyInit__rows(void) {
    make_crc_tables();
    return PyModuleDef_Init(&definition);
}
