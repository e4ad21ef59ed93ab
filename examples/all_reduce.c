// Sums 256 floats over all ranks: ranklink run -n 4 -- ./all_reduce_c
#include <ranklink/ranklink.h>
#include <stdio.h>

static int all_reduce(ranklink_error** error) {
  ranklink_group* group;
  int status = ranklink_join(NULL, &group, error);
  if (status != RANKLINK_OK) return status;

  int rank = 0;
  int size = 0;
  ranklink_group_rank(group, &rank, NULL);
  ranklink_group_size(group, &size, NULL);

  float data[256];
  for (int i = 0; i < 256; ++i) data[i] = (float)i * (float)(rank + 1);
  status = ranklink_all_reduce(group, data, data, 256, RANKLINK_F32, RANKLINK_SUM, NULL, error);
  if (status == RANKLINK_OK && rank == 0) {
    printf("sum over %d ranks: [1] = %g, [255] = %g\n", size, data[1], data[255]);
  }
  ranklink_group_free(group);
  return status;
}

int main(void) {
  ranklink_error* error;
  if (all_reduce(&error) == RANKLINK_OK) return 0;
  fprintf(stderr, "%s\n", ranklink_error_message(error));
  ranklink_error_free(error);
  return 1;
}
