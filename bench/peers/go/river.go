// River: a client with a periodic job in each replica
package main

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	robfig "github.com/robfig/cron/v3"
)

type riverContender struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	ended  <-chan *river.Event
}

type jobArgs struct{}

func (jobArgs) Kind() string { return "job" }

type jobWorker struct {
	river.WorkerDefaults[jobArgs]
}

func (*jobWorker) Work(ctx context.Context, job *river.Job[jobArgs]) error {
	work(ctx, strconv.FormatInt(job.ID, 10), unix(job.ScheduledAt))
	return nil
}

type noneArgs struct{}

func (noneArgs) Kind() string { return "none" }

type noneWorker struct {
	river.WorkerDefaults[noneArgs]
}

func (*noneWorker) Work(context.Context, *river.Job[noneArgs]) error { return nil }

// The clock of the client, because no library that is preloaded moves the clock of Go.
type clock struct{}

func (clock) Now() time.Time       { return time.Now().Add(skew) }
func (clock) NowOrNil() *time.Time { return nil }

func (r *riverContender) connect(ctx context.Context) (err error) {
	if r.pool, err = pgxpool.New(ctx, url); err != nil || number != "0" {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(r.pool), nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	return err
}

func (r *riverContender) start(ctx context.Context, jobs []*river.PeriodicJob) (err error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &jobWorker{})
	river.AddWorker(workers, &noneWorker{})
	config := &river.Config{
		PeriodicJobs: jobs,
		Queues:       map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}},
		Workers:      workers,
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		// A job whose process was killed is looked for each 30 s.  It must have had time to end.
		JobTimeout:           lease,
		RescueStuckJobsAfter: lease,
	}
	if skew != 0 {
		config.Test.Time = clock{}
	}
	if r.client, err = river.NewClient(riverpgxv5.New(r.pool), config); err != nil {
		return err
	}
	return r.client.Start(ctx)
}

func (r *riverContender) run(ctx context.Context) error {
	spec := "@every " + tick.String()
	if cron != "" {
		spec = "CRON_TZ=" + zone + " " + cron
	}
	schedule, err := robfig.ParseStandard(spec)
	if err != nil {
		return err
	}
	var jobs []*river.PeriodicJob
	for _, name := range names() {
		jobs = append(jobs, river.NewPeriodicJob(schedule,
			func() (river.JobArgs, *river.InsertOpts) { return jobArgs{}, nil },
			&river.PeriodicJobOpts{ID: name}))
	}
	return r.start(ctx, jobs)
}

func (r *riverContender) pair(ctx context.Context) int {
	// as many as it works off at once, because it fetches ten times a second at most
	const batch = 100
	if r.client == nil {
		must(r.start(ctx, nil))
		r.ended, _ = r.client.Subscribe(river.EventKindJobCompleted)
	}
	jobs := make([]river.InsertManyParams, batch)
	for n := range jobs {
		jobs[n].Args = noneArgs{}
	}
	_, err := r.client.InsertMany(ctx, jobs)
	must(err)
	for range batch {
		<-r.ended
	}
	return batch
}
