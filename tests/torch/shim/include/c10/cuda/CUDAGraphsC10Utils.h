#include "c10/fake.h"
