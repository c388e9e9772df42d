package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Transactions are small, so that many are cut by a crash.
const recordsPerTransaction = 20

// franz-go's exactly once: reads committed records of a topic, writes each to the same partition of another and commits its offsets in the
// same transaction, however often its broker dies. It is done once it has copied all of a topic that has so many records. Prints how many
// records it copied, and how many sessions it took.
func copyTopic(bootstrap, from, to, group, records string) error {
	wanted, err := strconv.ParseInt(records, 10, 64)
	if err != nil {
		return err
	}
	copied := 0
	for begun := 1; ; begun++ {
		some, err := copySession(bootstrap, from, to, group, wanted)
		copied += some
		if err == nil {
			fmt.Println(copied, begun)
			return nil
		}
		// A new session fences the old one and goes on where the group is.
		fmt.Fprintln(os.Stderr, err)
	}
}

func copySession(bootstrap, from, to, group string, wanted int64) (int, error) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID(group+"-copier"),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(from),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
	)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	admin := kadm.NewClient(session.Client())
	copied := 0
	for {
		polling, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		fetches := session.PollRecords(polling, recordsPerTransaction)
		cancel()
		if fetches.NumRecords() == 0 {
			if done, err := isCopied(admin, session.Client(), from, wanted); err != nil || done {
				return copied, err
			}
			continue
		}
		some, err := copyRecords(session, fetches, to)
		copied += some
		if err != nil {
			return copied, err
		}
	}
}

// One transaction; how many records it copied, which is none if it was aborted.
func copyRecords(session *kgo.GroupTransactSession, fetches kgo.Fetches, to string) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := session.Begin(); err != nil {
		return 0, err
	}
	promise := kgo.AbortingFirstErrPromise(session.Client())
	fetches.EachRecord(func(in *kgo.Record) {
		out := &kgo.Record{Topic: to, Partition: in.Partition, Key: in.Key, Value: in.Value}
		session.Produce(ctx, out, promise.Promise())
	})
	committed, err := session.End(ctx, kgo.TransactionEndTry(promise.Err() == nil))
	if err != nil || !committed {
		return 0, err
	}
	return fetches.NumRecords(), nil
}

// Whether the topic has as many records as are wanted, and each is committed by the group.
func isCopied(admin *kadm.Client, client *kgo.Client, topic string, wanted int64) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return false, err
	}
	if err := ends.Error(); err != nil {
		return false, err
	}
	committed := client.CommittedOffsets()[topic]
	total, behind := int64(0), false
	ends.Each(func(end kadm.ListedOffset) {
		total += end.Offset
		behind = behind || committed[end.Partition].Offset < end.Offset
	})
	return total >= wanted && !behind, nil
}
