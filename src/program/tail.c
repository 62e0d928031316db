/*-------------------------------------------------------------------------
 *
 * tail.c
 *	  The end of what the command wrote to standard error.
 *
 * It is in memory that keeper and guardian share, so that it survives the guardian.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "program/program.h"

/*
 * AppendTail - add what the command has written; in the one process that copies it
 */
void
AppendTail(Tail *tail, const char *data, size_t length)
{
	size_t		total = atomic_load(&tail->total);

	for (size_t i = 0; i < length; i++)
		tail->ring[(total + i) % TAIL_MAX] = data[i];
	atomic_store(&tail->total, total + length);
}

/*
 * character_length - length of the UTF-8 character at the start of bytes; 0 if invalid
 *
 * The server refuses overlong forms, surrogates, and what is beyond U+10FFFF.
 */
static size_t
character_length(const unsigned char *bytes, size_t length)
{
	unsigned char second_min = 0x80;
	unsigned char second_max = 0xBF;
	size_t		needed;

	if (bytes[0] < 0x80)
		return bytes[0] == '\0' ? 0 : 1;

	if (bytes[0] >= 0xC2 && bytes[0] <= 0xDF)
		needed = 2;
	else if (bytes[0] >= 0xE0 && bytes[0] <= 0xEF)
		needed = 3;
	else if (bytes[0] >= 0xF0 && bytes[0] <= 0xF4)
		needed = 4;
	else
		return 0;
	if (bytes[0] == 0xE0)
		second_min = 0xA0;
	else if (bytes[0] == 0xED)
		second_max = 0x9F;
	else if (bytes[0] == 0xF0)
		second_min = 0x90;
	else if (bytes[0] == 0xF4)
		second_max = 0x8F;

	if (length < needed || bytes[1] < second_min || bytes[1] > second_max)
		return 0;
	for (size_t i = 2; i < needed; i++)
	{
		if (bytes[i] < 0x80 || bytes[i] > 0xBF)
			return 0;
	}
	return needed;
}

/*
 * escape - copy bytes, with each that is no valid character as \xNN
 *
 * ascii: the same for other characters than those of ASCII.  copy has room for four
 * times the length, and a terminating zero.
 */
static void
escape(const unsigned char *bytes, size_t length, bool ascii, char *copy)
{
	static const char digits[] = "0123456789abcdef";
	size_t		i = 0;

	while (i < length)
	{
		size_t		valid = character_length(bytes + i, length - i);

		if (valid == 0 || (ascii && valid > 1))
		{
			*copy++ = '\\';
			*copy++ = 'x';
			*copy++ = digits[bytes[i] >> 4];
			*copy++ = digits[bytes[i] & 15];
			i++;
		}
		else
		{
			memcpy(copy, bytes + i, valid);
			copy += valid;
			i += valid;
		}
	}
	*copy = '\0';
}

/*
 * PrintableText - any bytes as valid UTF-8; as a new string
 *
 * ascii: for a database whose encoding may lack a character.
 */
char *
PrintableText(const char *bytes, bool ascii)
{
	size_t		length = strlen(bytes);
	char	   *copy = malloc(4 * length + 1);

	if (copy == NULL)
		Die(EXIT_NO_RESOURCES, "out of memory");
	escape((const unsigned char *) bytes, length, ascii, copy);
	return copy;
}

/*
 * TailText - the last bytes as valid UTF-8, without the newline at the end
 *
 * length: how many bytes at most, in the answer as well.  ascii: as for PrintableText().
 * Returns a new string, or NULL if it is empty.
 */
char *
TailText(const Tail *tail, size_t length, bool ascii)
{
	unsigned char bytes[TAIL_MAX];
	char	   *copy = malloc(4 * TAIL_MAX + 1);
	size_t		total = atomic_load(&tail->total);
	size_t		held = total < length ? total : length;
	bool		is_cut = total > held;
	size_t		start = 0;

	if (copy == NULL)
		return NULL;
	for (size_t i = 0; i < held; i++)
		bytes[i] = (unsigned char) tail->ring[(total - held + i) % TAIL_MAX];

	while (held > 0 && (bytes[held - 1] == '\n' || bytes[held - 1] == '\r'))
		held--;

	/* The rest of a character that was cut is left out. */
	if (is_cut)
	{
		while (start < held && start < 3 && (bytes[start] & 0xC0) == 0x80)
			start++;
	}

	for (;;)
	{
		if (start == held)
		{
			free(copy);
			return NULL;
		}
		escape(bytes + start, held - start, ascii, copy);
		if (strlen(copy) <= length)
			return copy;
		do
			start++;
		while (start < held && (bytes[start] & 0xC0) == 0x80);
	}
}
