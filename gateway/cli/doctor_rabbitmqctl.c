#include "gateway/cli/doctor_rabbit.h"
void doctor_check_rabbitmqctl(struct doctor *d)
{
    (void)d;
}
