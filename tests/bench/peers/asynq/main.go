// asynq, measured by tests/bench/peers.py: tasks in ten queues that all fail once, and are run again two seconds later.
// One argument, JSON: {"url": Redis' address, "counts": {"retry": N}, "runs": R}. Prints a line of JSON for each run.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

const (
	queues      = 10
	backOff     = 2 * time.Second
	concurrency = 10 // as in its README
	bodyBytes   = 256
	limit       = 120 * time.Second
)

type given struct {
	URL    string         `json:"url"`
	Counts map[string]int `json:"counts"`
	Runs   int            `json:"runs"`
}

// When each task failed, and how late it was run again. A task's place is in its body.
type book struct {
	lock         sync.Mutex
	failed       []time.Time
	late         []time.Duration
	again        int
	first, last  time.Time
	began, ended time.Time // of the failures
	done         chan struct{}
}

func (b *book) run(_ context.Context, task *asynq.Task) error {
	now, n := time.Now(), binary.LittleEndian.Uint64(task.Payload())
	b.lock.Lock()
	defer b.lock.Unlock()
	if b.failed[n].IsZero() {
		b.failed[n] = now
		if b.began.IsZero() {
			b.began = now
		}
		b.ended = now
		return errors.New("refused")
	}
	if b.first.IsZero() {
		b.first = now
	}
	b.last = now
	b.late = append(b.late, now.Sub(b.failed[n].Add(backOff)))
	if len(b.late) == len(b.failed) {
		close(b.done)
	}
	return nil
}

func queue(n int) string { return fmt.Sprintf("retry%d", n%queues) }

func enqueue(redis asynq.RedisClientOpt, count int) error {
	client := asynq.NewClient(redis)
	defer client.Close()
	var group sync.WaitGroup
	failures := make(chan error, queues)
	for lane := 0; lane < queues; lane++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := lane; n < count; n += queues {
				body := make([]byte, bodyBytes)
				binary.LittleEndian.PutUint64(body, uint64(n))
				if _, err := client.Enqueue(asynq.NewTask("retry", body), asynq.Queue(queue(n))); err != nil {
					failures <- err
					return
				}
			}
		}()
	}
	group.Wait()
	close(failures)
	return <-failures
}

func measure(redis asynq.RedisClientOpt, shape string, count int, every time.Duration) error {
	b := &book{failed: make([]time.Time, count), done: make(chan struct{})}
	names := map[string]int{}
	for n := 0; n < queues; n++ {
		names[queue(n)] = 1
	}
	if err := enqueue(redis, count); err != nil {
		return err
	}
	server := asynq.NewServer(redis, asynq.Config{
		Concurrency:              concurrency,
		Queues:                   names,
		DelayedTaskCheckInterval: every, // 0: its default
		LogLevel:                 asynq.FatalLevel,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return backOff },
	})
	if err := server.Start(asynq.HandlerFunc(b.run)); err != nil {
		return err
	}
	defer server.Shutdown()
	select {
	case <-b.done:
	case <-time.After(limit):
		return fmt.Errorf("%d of %d were run again within %v", len(b.late), count, limit)
	}
	sort.Slice(b.late, func(i, j int) bool { return b.late[i] < b.late[j] })
	at := func(p float64) float64 { return b.late[int(p*float64(count-1)+0.5)].Seconds() * 1000 }
	seconds := b.last.Sub(b.first).Seconds()
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"shape": shape, "rate": float64(count) / seconds, "seconds": seconds, "p50_ms": at(0.5), "p99_ms": at(0.99),
		"p999_ms": at(0.999), "max_ms": at(1), "min_ms": at(0), "refused_s": b.ended.Sub(b.began).Seconds()})
}

func main() {
	var g given
	if err := json.Unmarshal([]byte(os.Args[1]), &g); err != nil {
		log.Fatal(err)
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{"settings": map[string]string{
		"concurrency": "10, as in its README",
		"retry":       "RetryDelayFunc answers 2 s; DelayedTaskCheckInterval as by default (5 s), and 1 s",
		"queues":      "10, of equal priority",
		"redis":       "appendonly, appendfsync everysec",
	}})
	redis := asynq.RedisClientOpt{Addr: g.URL}
	for run := 0; run < g.Runs; run++ {
		if err := measure(redis, "retry", g.Counts["retry"], 0); err != nil {
			log.Fatal("Error: ", err)
		}
		if err := measure(redis, "retry-1s", g.Counts["retry"], time.Second); err != nil {
			log.Fatal("Error: ", err)
		}
	}
}
