/*
 * planted_static.c
 *		Faults that the compilers and analyzers of scripts/test hard must find.
 *
 * Never linked.  Each check is first tried on it with one PLANT_ macro: a check that
  * finds nothing here would find nothing in src/ either.
 */
#include <stdlib.h>
#include <string.h>

extern int	planted(int argument);

#ifdef PLANT_CONVERSION
/* for the flags of "make strict" */
int
planted(int argument)
{
	short		narrow = argument;

	return narrow;
}
#endif

#ifdef PLANT_DOUBLE_FREE
/* for gcc's analyzer; its plain warnings do not see this one */
static void
drop(int *number)
{
	free(number);
}

int
planted(int argument)
{
	int		   *number = malloc(sizeof(int));

	if (number == NULL)
		return 0;
	*number = argument;
	if (argument > 42)
		drop(number);
	drop(number);
	return argument;
}
#endif

#ifdef PLANT_NULL
/* for clang's analyzer */
int
planted(int argument)
{
	int		   *number = NULL;
	static int	only = 0;

	if (argument > 42)
		number = &only;
	return *number;
}
#endif

#ifdef PLANT_BOUNDS
/* for cppcheck */
int
planted(int argument)
{
	int			numbers[4];

	memset(numbers, 0, sizeof(numbers));
	return numbers[4] + argument;
}
#endif
