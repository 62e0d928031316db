/*-------------------------------------------------------------------------
 *
 * printable.c
 *	  Which characters of names and other texts people can see.
 *
 * Views, messages and logs show what one role has written to another one.  A control
 * character makes a terminal obey the writer; with an invisible one, two names look
 * alike; one that a client's encoding does not have fails the whole view.
 *
 * The server's tables tell control characters of UTF8 from others, but not invisible
 * ones before version 17, nor in single-byte encodings.  A name must be one on each
 * version, so they are listed here.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/base.h"
#include "mb/pg_wchar.h"

typedef struct CharRange
{
	pg_wchar	first;
	pg_wchar	last;
} CharRange;

/*
 * Default_Ignorable_Code_Point in DerivedCoreProperties.txt of Unicode 16, which has the
 * marks of writing direction and most characters without width; the other characters of
 * category Cf without width; and the separators of lines and paragraphs.
 */
static const CharRange invisible[] = {
	{0x00AD, 0x00AD},
	{0x034F, 0x034F},
	{0x061C, 0x061C},
	{0x115F, 0x1160},
	{0x17B4, 0x17B5},
	{0x180B, 0x180F},
	{0x200B, 0x200F},
	{0x2028, 0x202E},
	{0x2060, 0x206F},
	{0x3164, 0x3164},
	{0xFE00, 0xFE0F},
	{0xFEFF, 0xFEFF},
	{0xFFA0, 0xFFA0},
	{0xFFF0, 0xFFFB},
	{0x13430, 0x1343F},
	{0x1BCA0, 0x1BCA3},
	{0x1D173, 0x1D17A},
	{0xE0000, 0xE0FFF},
};

/*
 * is_invisible - is that character of Unicode one of the list?
 */
static bool
is_invisible(pg_wchar c)
{
	for (int i = 0; i < (int) lengthof(invisible) && c >= invisible[i].first; i++)
	{
		if (c <= invisible[i].last)
			return true;
	}
	return false;
}

/*
 * is_printable - can people see the character that begins here?
 *
 * Looks nothing up in a catalog, because messages are masked where that could fail.
 */
static bool
is_printable(const unsigned char *c)
{
	if (*c < 0x80)
		return *c >= ' ' && *c != 0x7F;

	switch (GetDatabaseEncoding())
	{
		case PG_UTF8:
			return pg_dsplen((const char *) c) >= 0 && !is_invisible(utf8_to_unicode(c));

		case PG_SQL_ASCII:
			/* What it means is not known, and a client can refuse its bytes. */
			return false;

		case PG_LATIN1:
		case PG_LATIN2:
		case PG_LATIN3:
		case PG_LATIN4:
		case PG_LATIN5:
		case PG_LATIN6:
		case PG_LATIN7:
		case PG_LATIN8:
		case PG_LATIN9:
		case PG_LATIN10:
		case PG_ISO_8859_5:
		case PG_ISO_8859_6:
		case PG_ISO_8859_7:
			return *c >= 0xA0 && *c != 0xAD;

		case PG_ISO_8859_8:
			return *c >= 0xA0 && *c != 0xAD && *c != 0xFD && *c != 0xFE;

		case PG_WIN1250:
		case PG_WIN1251:
		case PG_WIN1252:
		case PG_WIN1253:
		case PG_WIN1254:
		case PG_WIN1257:
		case PG_WIN1258:
			return *c != 0xAD;

		case PG_WIN1255:
			return *c != 0xAD && *c != 0xFD && *c != 0xFE;

		case PG_WIN1256:
			return *c != 0xAD && *c != 0xFD && *c != 0xFE && *c != 0x9D && *c != 0x9E;

		default:
			return pg_dsplen((const char *) c) > 0;
	}
}

/*
 * ShedlockMaskText - replace what people cannot see in a text by question marks
 *
 * One for each byte.  Returns true if there was any.
 */
bool
ShedlockMaskText(char *str)
{
	bool		found = false;
	int			len;

	for (char *c = str; *c; c += len)
	{
		/* A text can be cut within a character. */
		len = (int) strnlen(c, (Size) pg_mblen(c));
		if (is_printable((const unsigned char *) c))
			continue;
		memset(c, '?', (Size) len);
		found = true;
	}
	return found;
}

/*
 * ShedlockCheckText - raise an error if a text has control or invisible characters
 *
 * Others read such a text as it is, in messages and views.
 */
void
ShedlockCheckText(char *str, const char *what)
{
	if (ShedlockMaskText(str))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not contain control or invisible characters", what),
				 GetDatabaseEncoding() == PG_SQL_ASCII ?
				 errdetail("In a database with encoding SQL_ASCII, only those of ASCII are known to be visible.") : 0));
}
