// Package shedlock runs jobs once, and holds locks, for services with replicas: a client of the PostgreSQL
// extension shedlock.
//
// A [Worker] asks the database which of its jobs is due, and runs it in a goroutine; [Lock] is for work that
// is no job. Leases are extended over a connection that nothing else uses.
package shedlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrHeld says that a lock was not acquired: it is held, or paused.
	ErrHeld = errors.New("the lock is not free")
	// ErrLost says that a lock was lost: the work must stop, and does not count.
	ErrLost = errors.New("the lock was lost")
	// ErrStopped says that the worker stops: the work must stop, and another replica begins it anew.
	ErrStopped = errors.New("the worker stops")
	// ErrNoExtension says that the database has no extension shedlock, or too old a one.
	ErrNoExtension = errors.New("the database needs extension shedlock 1.0 or newer, in its search_path, " +
		"and USAGE on its schema")
)

const (
	sleepMax  = 10 * time.Second // of a worker until it asks again
	lastWords = 5 * time.Second  // that runs have after their sign when the worker stops
	retry     = time.Second      // of an end, and of the last request, when the worker stops

	checkSQL = `SELECT 'shedlock_next'::regproc`
	nextSQL  = `SELECT name, token, (extract(epoch FROM tick) * 1000000)::bigint, attempt,
    extract(epoch FROM next_at - clock_timestamp())::float8, state
    FROM shedlock_next($1::text[], $2::interval, $3::interval, $4, $5)`
	// For how long a lease lasts from when its statement reached the server, which is after it was sent
	leftSQL = `SELECT coalesce(extract(epoch FROM max(lock_until) - statement_timestamp()), 0)::float8
    FROM shedlock_locks WHERE name = $1 AND token = $2`
	extendSQL  = `SELECT shedlock_extend($1, $2, $3::interval)`
	endSQL     = `SELECT shedlock_run_end($1, $2, $3, $4)`
	acquireSQL = `SELECT shedlock_acquire_token($1, $2::interval, $3::interval, $4::interval, $5)`
	releaseSQL = `SELECT shedlock_release($1, $2)`
	jobSQL     = `SELECT shedlock_job($1, $2, nullif($3, ''), nullif($4, 0), nullif($5, '')::interval, nullif($6, ''),
    nullif($7, '')::interval, nullif($8, '')::interval, nullif($9, '')::interval, nullif($10, '')::interval,
    nullif($11, '')::interval, nullif($12, ''))`
)

// An instant by the monotonic clock, which can stand still while the host is suspended, and by the wall's
type instant [2]time.Time

var now = func() instant { t := time.Now(); return instant{t, t.Round(0)} }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

var host, _ = os.Hostname()
var who = fmt.Sprintf("%s %d", host, os.Getpid())

// isDone waits until ctx is done, for at most a time, and says whether it is.
func isDone(ctx context.Context, limit time.Duration) bool {
	select {
	case <-ctx.Done():
		return true
	case <-time.After(limit):
		return false
	}
}

// A Lease is a lock that is held, and extended until its work has ended.
type Lease struct {
	Name  string
	Token int64 // for fencing

	ctx    context.Context // of its work
	cancel context.CancelCauseFunc
	tell   func(error) // of its statements
	onLost func()

	end    atomic.Pointer[instant]
	isLost atomic.Bool
}

func newLease(ctx context.Context, name string, token int64, tell func(error), onLost func()) *Lease {
	l := &Lease{Name: name, Token: token, tell: tell, onLost: onLost}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	return l
}

// String returns the name.
func (l *Lease) String() string { return l.Name }

// Check returns an error if the work must stop: [ErrLost], [ErrStopped], or the cause for which the context given to
// [Lock] is done. It reads the clocks, and so it knows at once, after its process has stood still, what the context of
// the work is told a moment later.
func (l *Lease) Check() error {
	if l.ctx.Err() == nil && l.left() <= 0 {
		l.lose()
	}
	return context.Cause(l.ctx)
}

// left returns how much time is left, by the clock that says less. What was lost stays so if a clock is set back.
func (l *Lease) left() time.Duration {
	if l.isLost.Load() {
		return 0
	}
	end, at := l.end.Load(), now()
	return min(end[0].Sub(at[0]), end[1].Sub(at[1]))
}

func (l *Lease) setEnd(sent instant, length time.Duration) {
	l.end.Store(&instant{sent[0].Add(length), sent[1].Add(length)})
}

func (l *Lease) lose() {
	if !l.isLost.Swap(true) {
		l.cancel(ErrLost)
		l.onLost()
	}
}

// A Run is a run of a job.
type Run struct {
	*Lease
	Tick    time.Time // for which it runs
	Attempt int       // at this tick, from 1
	Outcome string    // once it has ended
}

// A Handler does the work of a job. Its context is cancelled when the work must stop, with the cause [ErrLost] or
// [ErrStopped]. If it returns an error, or panics, the run has failed, and is repeated if it has attempts left.
type Handler func(ctx context.Context, run *Run) error

// A Job is a handler and the settings of shedlock_job, where zero means the default of that function. A job without a
// schedule is not declared.
type Job struct {
	Name               string
	Handler            Handler
	Schedule, TimeZone string // such as "0 3 * * *" and "Europe/Berlin", or "every 10 min"
	Attempts           int
	CatchUp            string // "latest" or "all"
	// Intervals as PostgreSQL reads them, such as "10 s"
	Backoff, MaxLate, OverdueAfter, SlowAfter, LockAtMostFor, LockAtLeastFor string
	Description                                                              string
}

// BeforeConnect can change the settings of each connection before it is opened, for passwords that expire.
type BeforeConnect func(ctx context.Context, config *pgx.ConnConfig) error

// A session is a connection that is opened when it is needed, and closed by any error. One of them asks for runs, and
// may wait in the server; another one, the keeper, extends leases and ends them.
type session struct {
	connString    string
	beforeConnect BeforeConnect
	length        time.Duration // of leases
	turn          sync.Mutex
	db            *pgx.Conn
}

func (s *session) limit() time.Duration { return min(s.length/3, 30*time.Second) }

func (s *session) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(s.connString)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // which PgBouncer's transaction mode allows
	config.RuntimeParams["client_encoding"] = "UTF8"
	config.RuntimeParams["application_name"] = cmp.Or(config.RuntimeParams["application_name"], "shedlock")
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, max(2*time.Second, s.limit()))
	config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) { slog.Warn("shedlock", "notice", notice.Message) }
	if s.beforeConnect != nil {
		limited, cancel := context.WithTimeout(ctx, s.limit())
		defer cancel()
		if err := s.beforeConnect(limited, config); err != nil {
			return nil, err
		}
	}
	// a resolver may not answer; the fallbacks are the other hosts, and without TLS
	limited, cancel := context.WithTimeout(ctx, config.ConnectTimeout*time.Duration(1+len(config.Fallbacks)))
	defer cancel()
	return pgx.ConnectConfig(limited, config)
}

// ask reads a statement's row. It may take wait longer than others.
func (s *session) ask(ctx context.Context, wait time.Duration, sql string, args []any, row ...any) (err error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.db == nil {
		if s.db, err = s.connect(ctx); err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeout(ctx, wait+s.limit())
	defer cancel()
	if err = s.db.QueryRow(limited, sql, args...).Scan(row...); err != nil {
		_ = s.db.Close(context.Background())
		s.db = nil
	}
	return err
}

func (s *session) close() {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.db != nil {
		_ = s.db.Close(context.Background())
		s.db = nil
	}
}

// findEnd finds out when a lease ends.
func (s *session) findEnd(ctx context.Context, l *Lease) error {
	var left float64
	sent := now()
	err := s.ask(ctx, 0, leftSQL, []any{l.Name, l.Token}, &left)
	if err == nil {
		l.setEnd(sent, seconds(left))
	}
	return err
}

// keep extends a lease while its work goes on, and cancels the work if the lease ends before.
func (s *session) keep(ctx, working context.Context, l *Lease) {
	var extending sync.WaitGroup
	extending.Go(func() {
		pause := min(s.length/3, l.left()-s.length/2)
		for !isDone(working, pause) && l.left() > 0 {
			pause = s.length / 3
			var isFull bool
			sent := now()
			err := s.ask(ctx, 0, extendSQL, []any{l.Name, l.Token, s.length}, &isFull)
			if err == nil && !isFull {
				// it was lost, or cut by the lock_at_most_for of its job, and is left until then
				err = s.findEnd(ctx, l)
			} else if err == nil && l.left() > 0 { // an answer can be too late
				l.setEnd(sent, s.length)
			}
			if err != nil {
				pause = s.length / 10
				l.tell(err)
			}
		}
	})
	// no timer counts the time of a suspension, so the clocks are read again and again
	for !isDone(working, min(time.Second, s.length/20)) {
		if l.left() <= 0 {
			l.lose()
		}
	}
	extending.Wait()
}

// release ends a lease, and says whether it was held until then.
func (s *session) release(ctx context.Context, l *Lease, sql string, args ...any) (isHeld bool) {
	isRepeat, pause := false, time.Duration(0)
	for l.left() > 0 && ctx.Err() == nil {
		err := s.ask(ctx, 0, sql, append([]any{l.Name, l.Token}, args...), &isHeld)
		if err == nil {
			isHeld = isHeld || isRepeat // a lock can have been released by a call that had no answer
			break
		}
		isHeld = false // a row can come before an error
		l.tell(err)
		isRepeat = sql == releaseSQL
		if refused := new(pgconn.PgError); errors.As(err, &refused) && refused.Code == "22P05" {
			toASCII(args) // the database's encoding lacks some of it
		}
		isDone(ctx, pause) // at first none: it may have been one broken connection
		pause = min(s.length/10, retry)
	}
	if !isHeld {
		l.lose()
	}
	return isHeld
}

func toASCII(args []any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = strings.Map(func(r rune) rune {
				if r < ' ' || r > '~' {
					return '?'
				}
				return r
			}, text)
		}
	}
}

// A Worker runs jobs when they are due: each tick once, however many replicas have a worker for it. Its listeners are
// called by several goroutines.
type Worker struct {
	ConnString    string        // a URL or settings, as pgx reads them
	BeforeConnect BeforeConnect // nil: nothing
	Jobs          []Job
	Lease         time.Duration                // that a run survives its replica; 0: 30 s
	Concurrency   int                          // how many runs may be at work; 0: 4
	Wait          time.Duration                // how long a call waits in the server for a job to come due; 0: the worker sleeps
	StopAfter     time.Duration                // how long runs may go on when the worker stops; 0: 20 s
	NoDeclare     bool                         // that the worker does not declare its jobs when it starts
	OnEvent       func(event string, run *Run) // "begun", "ended" or "lost"; nil: it is logged
	OnError       func(err error, run *Run)    // nil: it is logged; the run can be nil
}

// A service is a worker at work.
type service struct {
	Worker
	asker, keeper session
	handlers      map[string]Handler
	names         []string
	request       string // that may have begun a run, or may do so until its end
	requestEnd    time.Time
	stopping      context.Context
	work          context.Context // of handlers, which it tells that the worker stops
	life          context.Context // of the statements that extend and end runs
	atWork        atomic.Int32
	runs          sync.WaitGroup
	wake          atomic.Pointer[context.CancelFunc] // ends the nap of the asker
}

// Run declares the jobs and runs them, in goroutines, until ctx is done. Then it begins no more runs, lets those at
// work go on for StopAfter, and gives the rest back: their contexts are cancelled with the cause [ErrStopped], and they
// end as "returned" as soon as their handlers do, for which Run waits for 5 s before it returns nil.
//
// Run returns an error if the database is away or refuses at the start: for a wrong password, for a wrong schedule.
// After its start the worker goes on trying. No listener is called after Run has returned, also if a handler goes on.
func (w Worker) Run(ctx context.Context) error {
	w.Lease, w.StopAfter = cmp.Or(w.Lease, 30*time.Second), cmp.Or(w.StopAfter, 20*time.Second)
	w.Concurrency = cmp.Or(w.Concurrency, 4)
	if w.OnEvent == nil {
		w.OnEvent = func(event string, run *Run) { slog.Info("shedlock", "run", run, "event", event) }
	}
	if w.OnError == nil {
		w.OnError = func(err error, run *Run) { slog.Error("shedlock", "run", run, "error", err) }
	}
	s := &service{Worker: w, handlers: map[string]Handler{}, stopping: ctx}
	isComplete := len(w.Jobs) > 0
	for _, job := range w.Jobs {
		isComplete = isComplete && job.Handler != nil
		s.handlers[job.Name] = job.Handler
		s.names = append(s.names, job.Name)
	}
	if !isComplete || len(s.handlers) < len(w.Jobs) {
		return errors.New("a worker needs jobs, each with another name, and a handler")
	}
	if w.Lease < 0 || w.Concurrency < 0 || w.Wait < 0 || w.StopAfter < 0 {
		return errors.New("a worker's times and its concurrency must not be negative")
	}
	for _, session := range []*session{&s.asker, &s.keeper} {
		session.connString, session.beforeConnect, session.length = w.ConnString, w.BeforeConnect, w.Lease
		defer session.close()
	}
	if err := s.prepare(ctx); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	work, sign := context.WithCancelCause(life)
	defer sign(nil)
	s.life, s.work = life, work
	s.ask(ctx)
	atWork, rest := context.WithCancel(life)
	go func() { s.runs.Wait(); rest() }()
	if !isDone(atWork, w.StopAfter) {
		sign(ErrStopped)
		isDone(atWork, lastWords)
	}
	end()
	s.runs.Wait()
	return nil
}

func (s *service) prepare(ctx context.Context) error {
	var answer string
	err := s.asker.ask(ctx, 0, checkSQL, nil, &answer)
	if refused := new(pgconn.PgError); errors.As(err, &refused) && refused.Code == "42883" {
		return fmt.Errorf("%w: %w", ErrNoExtension, err)
	}
	for _, j := range s.Jobs {
		if err == nil && !s.NoDeclare && j.Schedule != "" {
			err = s.asker.ask(ctx, 0, jobSQL, []any{j.Name, j.Schedule, j.TimeZone, j.Attempts, j.Backoff, j.CatchUp,
				j.MaxLate, j.OverdueAfter, j.SlowAfter, j.LockAtMostFor, j.LockAtLeastFor, j.Description}, &answer)
		}
	}
	return err
}

// ask begins runs until the worker stops.
func (s *service) ask(ctx context.Context) {
	var pause time.Duration
	for ctx.Err() == nil {
		napping, wake := context.WithCancel(ctx)
		s.wake.Store(&wake)
		nap, err := sleepMax, error(nil)
		if int(s.atWork.Load()) < s.Concurrency {
			nap, err = s.begin(ctx, s.Wait)
		}
		if err == nil {
			pause = 0
		} else if ctx.Err() == nil {
			s.OnError(err, nil)
			s.requestEnd = time.Now().Add(s.Wait + s.Lease)
			nap, pause = pause, min(sleepMax, 2*pause+time.Second)
		}
		isDone(napping, nap)
		wake()
	}
	last, cancel := context.WithTimeout(s.life, lastWords)
	defer cancel()
	for s.request != "" && last.Err() == nil {
		nap := 100 * time.Millisecond
		if _, err := s.begin(last, 0); err != nil {
			s.OnError(err, nil)
			nap = retry
		}
		if s.request != "" {
			isDone(last, nap)
		}
	}
}

// begin begins a run if one is due, and returns how long to sleep.
func (s *service) begin(ctx context.Context, wait time.Duration) (time.Duration, error) {
	var name *string
	var token, tick *int64
	var attempt *int
	var next *float64
	var state string
	if s.request == "" {
		s.request, s.requestEnd = rand.Text(), time.Now().Add(wait+s.Lease)
	}
	args := []any{s.names, s.Lease, wait, who, s.request}
	if err := s.asker.ask(ctx, wait, nextSQL, args, &name, &token, &tick, &attempt, &next, &state); err != nil {
		return 0, err
	}
	if token == nil {
		// the server can still be at work on a call that was given up
		if state != "claimed" || time.Now().After(s.requestEnd) {
			s.request = ""
		}
		nap := sleepMax.Seconds()
		if wait > 0 {
			nap = 0
		} else if next != nil {
			nap = min(nap, *next)
		}
		return max(100*time.Millisecond, seconds(nap)), nil
	}
	run := &Run{Tick: time.UnixMicro(*tick).UTC(), Attempt: *attempt}
	run.Lease = newLease(s.work, *name, *token, func(err error) { s.OnError(err, run) }, func() { s.OnEvent("lost", run) })
	if err := s.asker.findEnd(ctx, run.Lease); err != nil {
		run.cancel(nil)
		return 0, err
	}
	s.request = ""
	s.atWork.Add(1)
	s.runs.Go(func() { s.do(run) })
	return 0, nil
}

func (s *service) do(run *Run) {
	defer run.cancel(nil)
	outcome, message := "succeeded", any(nil)
	var sign error // that the handler had when it ended
	if s.stopping.Err() != nil {
		sign = ErrStopped
		run.cancel(sign)
	} else if run.left() > 0 {
		s.OnEvent("begun", run)
		working, end := context.WithCancel(s.life)
		err := errors.New("the handler ended its goroutine") // unless it returns
		go func() {
			defer end()
			defer func() { sign = context.Cause(run.ctx) }()
			defer func() {
				if cause := recover(); cause != nil {
					err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
				}
			}()
			if err = s.handlers[run.Name](run.ctx, run); err != nil {
				// of a nil pointer, say, this can panic
				_, _ = err.Error(), errors.Is(err, ErrStopped)
			}
		}()
		s.keeper.keep(s.life, working, run.Lease)
		if s.life.Err() != nil {
			return // the handler goes on, and Run does not wait for it
		} else if err != nil {
			outcome, message = "failed", strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", ""), "?")
			if sign == nil || !errors.Is(err, sign) && !errors.Is(err, context.Canceled) {
				s.OnError(err, run)
			}
		}
	} else {
		run.lose()
	}
	if sign == ErrStopped {
		outcome, message = "returned", nil
	}
	if s.keeper.release(s.life, run.Lease, endSQL, outcome, message) {
		run.Outcome = outcome
		s.OnEvent("ended", run)
	}
	if s.atWork.Add(-1) == 0 {
		s.keeper.close()
	}
	(*s.wake.Load())()
}

// LockOptions are the options of [Lock].
type LockOptions struct {
	BeforeConnect BeforeConnect // nil: nothing
	AtMost        time.Duration // that the lock survives its holder; 0: 30 s
	AtLeast       time.Duration // for which it stays locked, also if the work ends before
	Wait          time.Duration // for the lock to be free
}

// Lock holds a lock during work, by a lease that is extended meanwhile.
//
// The context of the work is cancelled with the cause [ErrLost] if the lock is lost, and when ctx is done. Lock returns
// the error of the work, [ErrHeld] if the lock was not free in time, or [ErrLost] if it was lost.
func Lock(ctx context.Context, connString, name string, options LockOptions,
	work func(ctx context.Context, lease *Lease) error) (err error) {
	length := cmp.Or(options.AtMost, 30*time.Second)
	s := &session{connString: connString, beforeConnect: options.BeforeConnect, length: length}
	defer s.close()
	var token *int64
	args := []any{name, length, options.AtLeast, options.Wait, who}
	if err = s.ask(ctx, options.Wait, acquireSQL, args, &token); err != nil {
		return err
	} else if token == nil {
		return fmt.Errorf("lock %s: %w", name, ErrHeld)
	}
	tell := func(err error) { slog.Warn("shedlock", "lock", name, "error", err) }
	lease := newLease(ctx, name, *token, tell, func() {})
	defer lease.cancel(nil)
	life := context.WithoutCancel(ctx) // it is held, and released, also when ctx is done
	if err = s.findEnd(life, lease); err != nil {
		_ = s.ask(life, 0, releaseSQL, []any{name, *token}, new(bool))
		return err
	} else if lease.left() <= 0 {
		return fmt.Errorf("lock %s: %w", name, ErrLost)
	}
	working, end := context.WithCancel(life)
	var keeping sync.WaitGroup
	keeping.Go(func() { s.keep(life, working, lease) })
	defer func() {
		end()
		keeping.Wait()
		if !s.release(life, lease, releaseSQL) && err == nil {
			err = fmt.Errorf("lock %s: %w", name, ErrLost)
		}
	}()
	return work(lease.ctx, lease)
}
