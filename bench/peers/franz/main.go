// franz-go as a peer of bench/streams.py: a group of the coordinator with automatic commits.
//
//	franz SETTINGS
//
// SETTINGS is a file of key=value lines with the keys of the Java client; protocol.py defines the lines on standard
// input and output.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const stampedBytes = 101

// sink receives messages; take returns true when it has enough.
type sink interface{ take(record *kgo.Record) bool }

type window struct {
	messages        int64
	cpuS, durationS float64
	began           time.Time
}

func cpuS() float64 {
	total := 0.0
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		if err := syscall.Getrusage(who, &used); err != nil {
			panic(err)
		}
		total += float64(used.Utime.Sec+used.Stime.Sec) + float64(used.Utime.Usec+used.Stime.Usec)/1e6
	}
	return total
}

func (w *window) begin() { w.cpuS, w.began = cpuS(), time.Now() }

func (w *window) end(messages int64) {
	w.cpuS, w.durationS, w.messages = cpuS()-w.cpuS, time.Since(w.began).Seconds(), messages
}

func (w *window) figures() map[string]any {
	return map[string]any{
		"window_messages": w.messages, "window_cpu_s": w.cpuS, "window_s": w.durationS, "cpu_s": cpuS(),
	}
}

type read struct {
	window
	messages, count, offsets, size, keyBytes int64
}

func (r *read) take(record *kgo.Record) bool {
	r.offsets += record.Offset
	r.size += int64(len(record.Value))
	r.keyBytes += int64(len(record.Key))
	r.count++
	return r.count == r.messages
}

func (r *read) answer() map[string]any {
	figures := r.figures()
	figures["messages"], figures["offsets"], figures["bytes"] = r.count, r.offsets, r.size
	figures["key_bytes"] = r.keyBytes
	return figures
}

type tail struct {
	window
	settleUs, windowUs, beginUs, endUs int64
	count, atBegin, touched            int64
	latencies                          []int64
}

func (t *tail) take(record *kgo.Record) bool {
	t.count++
	t.touched += record.Offset + int64(len(record.Key))
	if len(record.Value) != stampedBytes {
		return false
	}
	now := time.Now().UnixMicro()
	if t.beginUs == 0 {
		t.beginUs = now + t.settleUs
	}
	if now < t.beginUs {
		return false
	}
	if t.endUs == 0 {
		t.endUs = now + t.windowUs
		t.atBegin = t.count
		t.begin()
	}
	t.latencies = append(t.latencies, now-int64(binary.BigEndian.Uint64(record.Value)))
	if now < t.endUs {
		return false
	}
	t.end(t.count - t.atBegin)
	return true
}

func (t *tail) answer() map[string]any {
	figures := t.figures()
	figures["messages"], figures["latencies_us"] = t.count, t.latencies
	return figures
}

// slices keeps slices of records for the client to use again.
type slices struct{ pool sync.Pool }

func (s *slices) GetRecords(n int) []kgo.Record {
	if found, ok := s.pool.Get().(*[]kgo.Record); ok && cap(*found) >= n {
		return (*found)[:0]
	}
	return make([]kgo.Record, 0, n)
}

func (s *slices) PutRecords(used []kgo.Record) { s.pool.Put(&used) }

func consume(settings map[string]string, group, topic string, timeout time.Duration, atEnd bool, to sink) error {
	reset := kgo.NewOffset().AtStart()
	if atEnd {
		reset = kgo.NewOffset().AtEnd()
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(settings["bootstrap.servers"], ",")...),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(reset),
	}
	for key, value := range settings {
		number, _ := strconv.Atoi(value)
		switch key {
		case "fetch.max.bytes":
			options = append(options, kgo.FetchMaxBytes(int32(number)))
		case "max.partition.fetch.bytes":
			options = append(options, kgo.FetchMaxPartitionBytes(int32(number)))
		case "fetch.min.bytes":
			options = append(options, kgo.FetchMinBytes(int32(number)))
		case "fetch.max.wait.ms":
			options = append(options, kgo.FetchMaxWait(time.Duration(number)*time.Millisecond))
		case "auto.commit.interval.ms":
			options = append(options, kgo.AutoCommitInterval(time.Duration(number)*time.Millisecond))
		case "ssl.ca.location":
			pem, err := os.ReadFile(value)
			if err != nil {
				return err
			}
			known := x509.NewCertPool()
			known.AppendCertsFromPEM(pem)
			options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: known}))
		case "pools":
			options = append(options, kgo.WithPools(&slices{}))
		case "bootstrap.servers", "gogc":
		default:
			return fmt.Errorf("the setting %s is not known to this peer", key)
		}
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, isPooled := settings["pools"]
	for {
		fetches := client.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			return errs[0].Err
		}
		for iterator := fetches.RecordIter(); !iterator.Done(); {
			record := iterator.Next()
			isDone := to.take(record)
			if isPooled {
				record.Recycle()
			}
			if isDone {
				return nil
			}
		}
	}
}

func obey(settings map[string]string, words []string) (map[string]any, error) {
	numbers := make([]int64, 0, len(words))
	for _, word := range words[3:] {
		number, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, number)
	}
	timeout := time.Duration(numbers[len(numbers)-1]) * time.Second
	if words[0] == "tail" {
		follower := &tail{settleUs: numbers[0] * 1_000_000, windowUs: numbers[1] * 1_000_000}
		err := consume(settings, words[2], words[1], timeout, true, follower)
		return follower.answer(), err
	}
	reader := &read{messages: numbers[0]}
	reader.begin()
	err := consume(settings, words[2], words[1], timeout, false, reader)
	reader.end(reader.count)
	return reader.answer(), err
}

func say(line map[string]any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/twmb/franz-go" {
				return module.Version
			}
		}
	}
	return "unknown"
}

func main() {
	settings := map[string]string{}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if key, value, found := strings.Cut(line, "="); found {
			settings[key] = value
		}
	}
	if percent, err := strconv.Atoi(settings["gogc"]); err == nil {
		debug.SetGCPercent(percent)
	}
	say(map[string]any{"ready": map[string]any{"version": version(), "go": runtime.Version()}})
	lines := make(chan string)
	go func() {
		input := bufio.NewScanner(os.Stdin)
		for input.Scan() {
			lines <- input.Text()
		}
		os.Exit(0) // the end of the input, also in the middle of a reading
	}()
	for line := range lines {
		figures, err := obey(settings, strings.Fields(line))
		if err != nil {
			say(map[string]any{"failed": err.Error()})
			continue
		}
		say(figures)
	}
}
