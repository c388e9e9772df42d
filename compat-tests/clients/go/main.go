// The Go clients as commands of the compat tests: `clients franz|sarama create|produce|consume|member …`; the contract is in
// compat-tests/src/driver.rs. `consume` joins no group: it reads every partition itself and stops at the end offsets
// that it found when it started. `member` does. `franz copy BOOTSTRAP FROM TO GROUP RECORDS` is in copier.go.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

const wait = 30 * time.Second

// A record as the tests write it, and with an offset as they read it.
type record struct {
	Partition *int32       `json:"partition"`
	Offset    int64        `json:"offset"`
	Timestamp *int64       `json:"timestamp"`
	Key       *string      `json:"key"`
	Value     *string      `json:"value"`
	Headers   [][2]*string `json:"headers"`
}

type client interface {
	create(bootstrap, topic string, partitions int32) error
	produce(bootstrap, topic, codec string, records []record) error
	consume(bootstrap, topic string, each func(record) error) error
	member(ctx context.Context, bootstrap, topic, group, strategy, instance string) error
}

var saying sync.Mutex

// An event of a member, as a line.
func say(event string, what any) {
	line, err := json.Marshal(map[string]any{event: what})
	if err != nil {
		panic(err)
	}
	saying.Lock()
	defer saying.Unlock()
	fmt.Println(string(line))
}

// Ends with stdin.
func untilStdinEnds() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

// Null and empty are different: nil and a slice of length 0.
func decode(text *string) []byte {
	if text == nil {
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(*text)
	if err != nil {
		panic(err)
	}
	if data == nil {
		data = []byte{}
	}
	return data
}

func encode(data []byte) *string {
	if data == nil {
		return nil
	}
	text := base64.StdEncoding.EncodeToString(data)
	return &text
}

func readRecords(from io.Reader) ([]record, error) {
	var records []record
	lines := json.NewDecoder(bufio.NewReader(from))
	for {
		var one record
		if err := lines.Decode(&one); err == io.EOF {
			return records, nil
		} else if err != nil {
			return nil, err
		}
		records = append(records, one)
	}
}

func run(args []string) error {
	if len(args) == 7 && args[0] == "franz" && args[1] == "copy" {
		return copyTopic(args[2], args[3], args[4], args[5], args[6])
	}
	if len(args) < 4 {
		return fmt.Errorf("usage: franz|sarama create|produce|consume BOOTSTRAP TOPIC …")
	}
	which, found := map[string]client{"franz": franz{}, "sarama": saramaClient{}}[args[0]]
	if !found {
		return fmt.Errorf("no client %q", args[0])
	}
	bootstrap, topic := args[2], args[3]
	switch args[1] {
	case "create":
		partitions, err := strconv.ParseInt(args[4], 10, 32)
		if err != nil {
			return err
		}
		return which.create(bootstrap, topic, int32(partitions))
	case "produce":
		records, err := readRecords(os.Stdin)
		if err != nil {
			return err
		}
		return which.produce(bootstrap, topic, args[4], records)
	case "consume":
		out := bufio.NewWriter(os.Stdout)
		defer out.Flush()
		lines := json.NewEncoder(out)
		return which.consume(bootstrap, topic, func(one record) error { return lines.Encode(one) })
	case "member":
		if err := which.member(untilStdinEnds(), bootstrap, topic, args[4], args[5], args[6]); err != nil {
			return err
		}
		say("closed", true)
		return nil
	}
	return fmt.Errorf("no command %q", args[1])
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
