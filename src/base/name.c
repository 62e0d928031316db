/*-------------------------------------------------------------------------
 *
 * name.c
 *	  Names of locks: what is allowed, who may use them, their keys and lock tags (I11).
 *
 * The key is 64 bits of a cryptographic hash of the name.  Two names with one key share
 * the advisory half: a session lock, run or open transaction of one keeps others off the
 * other one.  They have rows, tokens and owners of their own: the name in the row decides
 * which lock it is.  An attacker cannot find a name with the key of a given other one.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/base.h"
#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

/* Keys of names that this process has used, unless a name is long: sets of them. */
#define KEY_SETS		512
#define KEYS_IN_SET		8
#define KNOWN_NAME_MAX	52

typedef struct
{
	uint64		key;
	int			len;			/* of the name; 0: there is none */
	char		name[KNOWN_NAME_MAX];
} KnownKey;

/*
 * compute_key - the first 64 bits of the SHA-256 of a name
 */
static uint64
compute_key(const char *name, int len)
{
	Datum		str = PointerGetDatum(cstring_to_text_with_len(name, len));
	Datum		hash = DirectFunctionCall1(sha256_bytea, str);
	uint64		key;

	memcpy(&key, VARDATA_ANY(DatumGetPointer(hash)), sizeof(key));
	pfree(DatumGetPointer(hash));
	pfree(DatumGetPointer(str));
	return pg_ntoh64(key);
}

/*
 * ShedlockKey - the 64-bit key of a name of len bytes
 */
uint64
ShedlockKey(const char *name, int len)
{
	static KnownKey known[KEY_SETS][KEYS_IN_SET];
	static unsigned victim = 0;
	KnownKey   *set;
	KnownKey   *slot;

	if (!SHEDLOCK_CACHES || len == 0 || len > KNOWN_NAME_MAX)
		return compute_key(name, len);
	set = known[hash_bytes((const unsigned char *) name, len) % KEY_SETS];
	for (slot = set; slot < set + KEYS_IN_SET && slot->len > 0; slot++)
	{
		if (slot->len == len && memcmp(slot->name, name, (size_t) len) == 0)
			return slot->key;
	}
	if (slot == set + KEYS_IN_SET)
		slot = &set[victim++ % KEYS_IN_SET];
	slot->len = 0;
	slot->key = compute_key(name, len);
	memcpy(slot->name, name, (size_t) len);
	slot->len = len;
	return slot->key;
}

/*
 * ShedlockSetTag - the lock tag of a key in a class
 */
void
ShedlockSetTag(LOCKTAG *tag, uint16 lockclass, uint64 key)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId,
						 (uint32) (key >> 32), (uint32) key, lockclass);
}

/*
 * ShedlockTagOfClass - the tag of the same key in another class
 */
void
ShedlockTagOfClass(LOCKTAG *tag, const LOCKTAG *base, uint16 lockclass)
{
	*tag = *base;
	tag->locktag_field4 = lockclass;
}

/*
 * ShedlockMakeName - set *name to a name, checked, with its lock tag; keeps str
 */
void
ShedlockMakeName(Oid nsp, char *str, ShedlockName *name)
{
	int			len = (int) strlen(str);

	if (len == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lock name must not be empty")));
	if (len > SHEDLOCK_NAME_MAX &&
		pg_mbstrlen_with_len(str, len) > SHEDLOCK_NAME_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lock name is too long"),
				 errdetail("A lock name has at most %d characters.", SHEDLOCK_NAME_MAX)));

	name->str = str;
	name->len = len;
	name->nsp = nsp;
	ShedlockSetTag(&name->tag, SHEDLOCK_CLASS_LOCK, ShedlockKey(str, len));
}

/*
 * prefix_role - the role that a name begins with, before its first colon
 *
 * Nothing is unquoted or folded.  Returns InvalidOid if there is no such role.
 */
static Oid
prefix_role(const char *name)
{
	const char *colon = strchr(name, ':');

	if (colon == NULL || colon - name >= NAMEDATALEN)
		return InvalidOid;
	return get_role_oid(pnstrdup(name, (Size) (colon - name)), true);
}

/*
 * ShedlockMayUseName - may the caller use locks of that name?
 *
 * With shedlock.role_prefix on, names that begin with a role and a colon are for
 * roles with its privileges, all others for superusers.
 */
bool
ShedlockMayUseName(const char *name)
{
	Oid			role;

	if (!shedlock_role_prefix)
		return true;
	role = prefix_role(name);
	return OidIsValid(role) ? has_privs_of_role(GetUserId(), role) : superuser();
}

/*
 * ShedlockCheckMayUse - raise 42501 unless the caller may use locks of that name
 */
void
ShedlockCheckMayUse(const ShedlockName *name)
{
	const char *colon = strchr(name->str, ':');
	Oid			role;

	if (ShedlockMayUseName(name->str))
		return;
	role = prefix_role(name->str);
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for lock \"%s\"", name->str),
			 OidIsValid(role) ?
			 errdetail("With shedlock.role_prefix on, only roles with the privileges of role \"%s\" may use this name.",
					   GetUserNameFromId(role, false)) :
			 errdetail("With shedlock.role_prefix on, only superusers may use a name that does not begin with a role and a colon."),
			 errhint("Begin the name with a role whose privileges you have and a colon, as in \"%s:%s\".",
					 GetUserNameFromId(GetUserId(), false), colon ? colon + 1 : name->str)));
}
