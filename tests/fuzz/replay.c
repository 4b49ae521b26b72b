/* replay DIRECTORY: gives every file of a corpus to a harness, without libFuzzer. Prints one TAP line. */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX ((size_t)1 << 20)

static void replay_file(const char *path)
{
    FILE *f = fopen(path, "re");
    uint8_t *data = malloc(FILE_MAX);
    size_t len = f && data ? fread(data, 1, FILE_MAX, f) : 0;
    if (!f || !data || ferror(f)) {
        printf("not ok 1 - cannot read %s\n", path);
        exit(1);
    }
    fclose(f);
    /* A block of just that size, so that the sanitizer notices reads behind it. */
    uint8_t *exact = fuzz_copy(bytes_of(data, len));
    free(data);
    LLVMFuzzerTestOneInput(exact, len);
    free(exact);
}

int main(int argc, char **argv)
{
    struct dirent **entries;
    int count = argc == 2 ? scandir(argv[1], &entries, NULL, alphasort) : -1;
    int files = 0;
    if (count < 0) {
        fprintf(stderr, "usage: %s CORPUS-DIRECTORY\n", argv[0]);
        return 64;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < count; i++) {
        char path[4096];
        if (entries[i]->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/%s", argv[1], entries[i]->d_name);
            printf("# %s\n", path); /* the last one is the culprit */
            replay_file(path);
            files++;
        }
        free(entries[i]);
    }
    free(entries);
    printf("%s 1 - %d inputs\n1..1\n", files > 0 ? "ok" : "not ok", files);
    return files > 0 ? 0 : 1;
}
