// A service that works as test/perl/ClientSuite.pm tells it to, with the package of clients/go.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"shedlock.example/shedlock"
)

var printing sync.Mutex

func say(words ...any) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Printf("%.6f %s", stamp(time.Now()), fmt.Sprintln(words...))
}

func stamp(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func number(s string) float64 {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		log.Fatal(err)
	}
	return n
}

func seconds(s string) time.Duration { return time.Duration(number(s) * float64(time.Second)) }

// steps works until a time, and asks before each step whether it may.
func steps(lease *shedlock.Lease, end time.Time) error {
	for time.Now().Before(end) {
		at := stamp(time.Now())
		if err := lease.Check(); err != nil {
			return err
		}
		say("step", lease.Name, lease.Token, fmt.Sprintf("%.6f", at))
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}

func handler(work string) shedlock.Handler {
	kind, length, _ := strings.Cut(work, ":")
	return func(ctx context.Context, run *shedlock.Run) error {
		if kind == "block" {
			time.Sleep(seconds(length))
		}
		end := time.Now().Add(seconds(length))
		defer say("done", run.Name, run.Token)
		var err error
		if kind == "blind" {
			time.Sleep(time.Until(end))
		} else {
			err = steps(run.Lease, end)
		}
		if err == nil {
			err = run.Check()
		}
		if err != nil {
			say("signed", run.Name, run.Token, err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
				log.Fatal("the context of the work is not cancelled")
			}
			return context.Cause(ctx)
		}
		if kind == "fail" && run.Attempt == 1 {
			return errors.New("of the work")
		}
		return nil
	}
}

func set(job *shedlock.Job, key, value string) {
	switch key {
	case "work":
		job.Handler = handler(value)
	case "schedule":
		job.Schedule = value
	case "attempts":
		job.Attempts = int(number(value))
	case "catch_up":
		job.CatchUp = value
	case "max_late":
		job.MaxLate = value
	default:
		log.Fatal("unknown setting ", key)
	}
}

func lock(ctx context.Context, name string, options map[string]string) error {
	limits := shedlock.LockOptions{AtMost: seconds(options["lease"])}
	if wait, ok := options["wait"]; ok {
		limits.Wait = seconds(wait)
	}
	var token int64
	err := shedlock.Lock(ctx, "", name, limits, func(_ context.Context, lease *shedlock.Lease) error {
		token = lease.Token
		say("begun", name)
		return steps(lease, time.Now().Add(seconds(options["seconds"])))
	})
	switch {
	case err == nil:
		say("released", name, token)
	case errors.Is(err, shedlock.ErrHeld):
		say("refused", name)
	case errors.Is(err, shedlock.ErrLost):
		say("lost", name)
	default:
		return err
	}
	return nil
}

func main() {
	options := map[string]string{}
	worker := shedlock.Worker{
		OnEvent: func(event string, run *shedlock.Run) {
			words := []any{event, run.Name, run.Token}
			switch event {
			case "begun":
				words = append(words, run.Attempt, run.Tick.Format(time.RFC3339Nano))
			case "ended":
				words = append(words, run.Outcome)
			}
			say(words...)
		},
		OnError: func(err error, run *shedlock.Run) {
			name := "-"
			if run != nil {
				name = run.Name
			}
			say("error", name, oneLine(err))
		},
	}
	for _, argument := range os.Args[1:] {
		key, value, _ := strings.Cut(argument, "=")
		if key == "job" {
			worker.Jobs = append(worker.Jobs, shedlock.Job{Name: value})
		} else if len(worker.Jobs) > 0 {
			set(&worker.Jobs[len(worker.Jobs)-1], key, value)
		} else {
			options[key] = value
		}
	}
	for key, value := range options {
		switch key {
		case "lease":
			worker.Lease = seconds(value)
		case "wait":
			worker.Wait = seconds(value)
		case "stop_after":
			worker.StopAfter = seconds(value)
		case "concurrency":
			worker.Concurrency = int(number(value))
		case "declare":
			worker.NoDeclare = value == "no"
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	var err error
	if name, ok := options["lock"]; ok {
		err = lock(ctx, name, options)
	} else {
		err = worker.Run(ctx)
	}
	if err != nil {
		say("failed", oneLine(err))
		os.Exit(1)
	}
	say("over")
}
