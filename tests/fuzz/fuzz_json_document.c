/* A text with "json" cut out of it and checked by itself is accepted when, and only when, jansson accepts it
 * whole, or only a number in it is too large for jansson; what was cut out is that member, and the rest is as
 * jansson has it. */
#include "gateway/json/json_document.h"
#include "gateway/json/json_memory.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define LOOSE (JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL)

static json_t *parse(struct bytes text, size_t flags, bool *overflow)
{
    json_error_t why;
    bool no_memory;
    json_t *value = json_memory_load(text, flags, &no_memory, &why);
    FUZZ_HOLDS(!no_memory);
    *overflow = value == NULL && json_error_code(&why) == json_error_numeric_overflow;
    return value;
}

static void check_message(struct bytes text, const json_t *got, const json_t *whole)
{
    const json_t *place = json_object_get(got, "json");
    if (place == NULL || json_object_get(whole, "json") == NULL) {
        FUZZ_HOLDS(place == NULL && json_object_get(whole, "json") == NULL);
        return;
    }
    struct bytes raw = json_document_raw(text, place);
    FUZZ_HOLDS(raw.len > 0 && raw.data >= text.data && raw.data + raw.len <= text.data + text.len);
    bool overflow;
    json_t *value = parse(raw, LOOSE, &overflow);
    FUZZ_HOLDS(value != NULL && json_equal(value, json_object_get(whole, "json")));
    json_decref(value);
}

static void check_members(struct bytes text, const json_t *got)
{
    struct bytes rest = json_raw_object(text), name, value;
    size_t count = 0;
    bool overflow;
    while (json_raw_next(&rest, &name, &value)) {
        json_t *key = parse(name, LOOSE, &overflow), *v = parse(value, LOOSE, &overflow);
        FUZZ_HOLDS(json_is_string(key) && (v != NULL || overflow));
        FUZZ_HOLDS(json_raw_is(name, "json") ==
                   (strcmp(json_string_value(key), "json") == 0 && json_string_length(key) == 4));
        json_decref(key);
        json_decref(v);
        count++;
    }
    FUZZ_HOLDS(count == json_object_size(got));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes text = bytes_of(data, size);
    enum json_fault fault;
    struct err e = {0};
    json_t *got = json_document_load(text, &fault, &e);
    bool overflow;
    json_t *strict = parse(text, JSON_DECODE_ANY, &overflow), *loose = parse(text, LOOSE, &overflow);
    bool nul = size > 0 && memchr(data, '\0', size) != NULL;
    if (got == NULL) {
        fuzz_check_err(&e, ERR_REJECT);
        FUZZ_HOLDS(strict == NULL || nul || fault == JSON_FAULT_LIMIT);
    } else if (loose == NULL) {
        FUZZ_HOLDS(overflow && !nul);
        check_members(text, got);
    } else {
        FUZZ_HOLDS(!nul);
        check_members(text, got);
        check_message(text, got, loose);
        const json_t *list = json_object_get(got, "messages"), *all = json_object_get(loose, "messages");
        FUZZ_HOLDS(json_array_size(list) == json_array_size(all));
        for (size_t i = 0; i < json_array_size(list) && i < 1000; i++)
            check_message(text, json_array_get(list, i), json_array_get(all, i));
    }
    json_decref(got);
    json_decref(strict);
    json_decref(loose);
    return 0;
}
