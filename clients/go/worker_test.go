package shedlock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// skewed lets a test move the clocks.
func skewed(t *testing.T) *[2]atomic.Int64 {
	var skew [2]atomic.Int64
	original := now
	t.Cleanup(func() { now = original })
	now = func() instant {
		n := original()
		return instant{n[0].Add(time.Duration(skew[0].Load())), n[1].Add(time.Duration(skew[1].Load()))}
	}
	return &skew
}

func held(length time.Duration) (*Lease, *atomic.Int32) {
	var lost atomic.Int32
	lease := newLease(context.Background(), "a", 1, func(error) {}, func() { lost.Add(1) })
	lease.setEnd(now(), length)
	return lease, &lost
}

// The host is suspended, or its clock is set forward: the work is told soon, once.
func TestClockJumps(t *testing.T) {
	for clock, name := range []string{"monotonic", "wall"} {
		t.Run(name, func(t *testing.T) {
			skew := skewed(t)
			lease, lost := held(time.Minute)
			keeper := &session{length: time.Minute}
			working, end := context.WithCancel(context.Background())
			var keeping sync.WaitGroup
			keeping.Go(func() { keeper.keep(context.Background(), working, lease) })
			defer func() { end(); keeping.Wait() }()

			if isDone(lease.ctx, 1500*time.Millisecond) || lease.Check() != nil {
				t.Fatal("the work is told without a reason")
			}
			skew[clock].Store(int64(61 * time.Second))
			if !isDone(lease.ctx, 3*time.Second) {
				t.Fatal("the work is not told")
			}
			if !errors.Is(context.Cause(lease.ctx), ErrLost) || !errors.Is(lease.Check(), ErrLost) {
				t.Fatal("the cause is", context.Cause(lease.ctx))
			}
			time.Sleep(1500 * time.Millisecond)
			if lost.Load() != 1 {
				t.Fatal("the listener is told", lost.Load(), "times")
			}
			if keeper.release(context.Background(), lease, endSQL) {
				t.Fatal("the run counts")
			}
		})
	}
}

// The difference of two times is the wall clock's only if they have nothing of the monotonic one.
func TestClocksDiffer(t *testing.T) {
	if n := now(); n[0] == n[0].Round(0) || n[1] != n[1].Round(0) {
		t.Fatal("these are not two clocks:", n)
	}
}

// Check reads the clocks: the work must not go on until another goroutine has told it.
func TestCheckReadsClocks(t *testing.T) {
	for clock, name := range []string{"monotonic", "wall"} {
		t.Run(name, func(t *testing.T) {
			skew := skewed(t)
			lease, lost := held(time.Minute)
			skew[clock].Store(int64(61 * time.Second))
			if !errors.Is(lease.Check(), ErrLost) || !errors.Is(context.Cause(lease.ctx), ErrLost) || lost.Load() != 1 {
				t.Fatal("the lease is over, and Check says", lease.Check())
			}
		})
	}
}

// A clock that is set back makes no lease longer.
func TestClockSetBack(t *testing.T) {
	skew := skewed(t)
	lease, _ := held(time.Minute)
	skew[1].Store(-int64(time.Hour))
	if left := lease.left(); left > time.Minute {
		t.Fatal("a lease of a minute lasts for", left)
	}
	skew[0].Store(int64(61 * time.Second))
	if !errors.Is(lease.Check(), ErrLost) {
		t.Fatal("the lease is over, and Check says", lease.Check())
	}
	skew[0].Store(0)
	lease.setEnd(now(), time.Minute)
	if lease.left() > 0 {
		t.Fatal("a lost lease lasts again")
	}
}

type typedNil struct{ text string }

func (e *typedNil) Error() string { return e.text }

// An error that panics when it is read fails its run, and ends no process.
func TestErrorPanics(t *testing.T) {
	told := make(chan string, 9)
	wake := context.CancelFunc(func() {})
	lease, _ := held(time.Minute)
	s := &service{stopping: context.Background(), life: context.Background(), keeper: session{length: time.Minute}}
	s.OnEvent = func(string, *Run) {}
	s.OnError = func(err error, _ *Run) { told <- err.Error() }
	s.wake.Store(&wake)
	s.handlers = map[string]Handler{"a": func(context.Context, *Run) error {
		lease.setEnd(now(), -time.Minute) // no server is asked
		return (*typedNil)(nil)
	}}
	s.do(&Run{Lease: lease})
	if text := <-told; !strings.HasPrefix(text, "panic: ") {
		t.Fatal("it is told:", text)
	}
}

// A handler that ignores its sign goes on when Run has returned, and nothing is told of it.
func TestHandlerGoesOn(t *testing.T) {
	life, end := context.WithCancel(context.Background())
	defer end()
	told := make(chan string, 9)
	goOn := make(chan struct{})
	lease, _ := held(time.Minute)
	lease.onLost = func() { told <- "lost" }
	lease.ctx, lease.cancel = context.WithCancelCause(life)
	s := &service{stopping: life, life: life, keeper: session{length: time.Minute}}
	s.OnEvent = func(event string, _ *Run) { told <- event }
	s.OnError = func(err error, _ *Run) { told <- err.Error() }
	s.handlers = map[string]Handler{"a": func(_ context.Context, run *Run) error {
		<-goOn
		lease.setEnd(now(), -time.Minute)
		return run.Check()
	}}
	s.runs.Go(func() { s.do(&Run{Lease: lease}) })
	if event := <-told; event != "begun" {
		t.Fatal(event, "is told")
	}
	end()
	s.runs.Wait()
	close(goOn)
	time.Sleep(100 * time.Millisecond)
	if len(told) > 0 {
		t.Fatal(<-told, "is told")
	}
}
