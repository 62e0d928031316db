// A replica of a service that does a job if no other replica does; lib/pq.
//
//	replica once LOCK           tries once
//	replica keep LOCK           works until the lock is lost
//	replica race LOCK ROUNDS    tries until it has worked ROUNDS times
//
// libpq's environment variables say where the server is.
package main

import (
	"database/sql"
	"errors"
	"fmt"
	"log"
	"math/rand"
	"os"
	"strconv"
	"time"

	_ "github.com/lib/pq"
)

var errLost = errors.New("the lock was lost")

// runOnce runs work if no other replica does, and says whether it ran.
// db is a pool: each statement may run in another session.
func runOnce(db *sql.DB, lock string, work func(token int64, keepAlive func() error) error) (ran bool, err error) {
	var token sql.NullInt64
	if err = db.QueryRow("SELECT shedlock_acquire_token($1, '1 min')", lock).Scan(&token); err != nil || !token.Valid {
		return false, err
	}
	defer func() {
		if _, e := db.Exec("SELECT shedlock_release($1, $2)", lock, token); err == nil {
			err = e
		}
	}()
	return true, work(token.Int64, func() error {
		var alive bool
		err := db.QueryRow("SELECT shedlock_extend($1, $2, '1 min')", lock, token).Scan(&alive)
		if err == nil && !alive {
			err = errLost
		}
		return err
	})
}

func once(db *sql.DB, lock string) (string, error) {
	ran, err := runOnce(db, lock, func(_ int64, keepAlive func() error) error { return keepAlive() })
	return map[bool]string{true: "ran", false: "refused"}[ran], err
}

func keep(db *sql.DB, lock string) (string, error) {
	_, err := runOnce(db, lock, func(_ int64, keepAlive func() error) (err error) {
		for fmt.Println("holding"); err == nil; err = keepAlive() {
			time.Sleep(50 * time.Millisecond)
		}
		return err
	})
	if errors.Is(err, errLost) {
		return "lost", nil
	}
	return "refused", err
}

func race(db *sql.DB, lock string, rounds int) (string, error) {
	won, refused := 0, 0
	// Loses an update if another replica runs it meanwhile: two statements, on purpose.
	work := func(token int64, keepAlive func() error) error {
		var value int64
		var started string
		if err := db.QueryRow("SELECT value, clock_timestamp()::text FROM race_counter").Scan(&value, &started); err != nil {
			return err
		}
		time.Sleep(time.Duration(2000+rand.Intn(3000)) * time.Microsecond)
		if won%8 == 0 {
			if err := keepAlive(); err != nil {
				return err
			}
		}
		if _, err := db.Exec("UPDATE race_counter SET value = $1", value+1); err != nil {
			return err
		}
		_, err := db.Exec("INSERT INTO race_log (token, started) VALUES ($1, $2)", token, started)
		return err
	}
	for won < rounds {
		if ran, err := runOnce(db, lock, work); err != nil {
			return "", err
		} else if ran {
			won++
		} else {
			refused++
		}
		time.Sleep(time.Duration(4000+rand.Intn(16000)) * time.Microsecond)
	}
	return fmt.Sprintf("%d won, %d refused", won, refused), nil
}

func main() {
	var answer string
	db, err := sql.Open("postgres", "sslmode=disable")
	if err != nil {
		log.Fatal(err)
	}
	switch lock := os.Args[2]; os.Args[1] {
	case "once":
		answer, err = once(db, lock)
	case "keep":
		answer, err = keep(db, lock)
	case "race":
		rounds, _ := strconv.Atoi(os.Args[3])
		answer, err = race(db, lock, rounds)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer)
}
