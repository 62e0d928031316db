// A replica of a service that calls RunJob() of doc/services.md; see test/perl/JobRecipes.pm.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	_ "github.com/lib/pq"
)

var errWork = errors.New("of the work")

func open(url string) *sql.DB {
	db, err := sql.Open("postgres", url)
	if err != nil {
		log.Fatal(err)
	}
	return db
}

func main() {
	name, replica := os.Args[1], os.Args[3]
	lease, _ := strconv.ParseFloat(os.Args[2], 64)
	job := Job{name, time.Duration(lease * float64(time.Second))}
	db := open("sslmode=disable binary_parameters=yes")
	seen := open(fmt.Sprintf("host=%s port=%s user=worker sslmode=disable", os.Getenv("WORK_HOST"), os.Getenv("WORK_PORT")))

	work := func(ctx context.Context, _ time.Time, token int64) error {
		for {
			at := float64(time.Now().UnixMilli()) / 1000
			if !strings.HasPrefix(name, "blind") && ctx.Err() != nil {
				return ctx.Err()
			}
			var order string
			if err := seen.QueryRow("SELECT work_step($1, $2, $3, $4)", name, replica, token, at).Scan(&order); err != nil {
				log.Fatal(err)
			}
			switch order {
			case "raise":
				return errWork
			case "done":
				return nil
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	for goOn := true; goOn; time.Sleep(200 * time.Millisecond) {
		answer := "not due"
		switch ran, err := RunJob(db, job, work); {
		case ran:
			answer = "ran"
		case errors.Is(err, ErrLost) || errors.Is(err, context.Canceled):
			answer = "lost"
		case errors.Is(err, errWork):
			answer = "raised: " + err.Error()
		case err != nil:
			answer = "error: " + err.Error()
		}
		if err := seen.QueryRow("SELECT work_told($1, $2, $3)", name, replica, answer).Scan(&goOn); err != nil {
			log.Fatal(err)
		}
	}
}
