#include "CTorture.h"

int main(int count, char **arguments) { return ctorture_main(count, arguments); }
