package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// franz-go. Its producer is idempotent with acks=all by default.
type franz struct{}

func (franz) create(bootstrap, topic string, partitions int32) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	admin, err := kadm.NewOptClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer admin.Close()
	answer, err := admin.CreateTopic(ctx, partitions, -1, nil, topic)
	if err != nil {
		return err
	}
	return answer.Err
}

func (franz) codec(name string) kgo.CompressionCodec {
	switch name {
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	return kgo.NoCompression()
}

// Records that name their partition need a partitioner that obeys; the others go through a client with the default one.
func (f franz) produce(bootstrap, topic, codec string, records []record) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	options := []kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.ProducerBatchCompression(f.codec(codec))}
	placing, err := kgo.NewClient(append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return err
	}
	defer placing.Close()
	choosing, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer choosing.Close()

	failures := make(chan error, len(records))
	for _, one := range records {
		out := &kgo.Record{Topic: topic, Key: decode(one.Key), Value: decode(one.Value)}
		for _, header := range one.Headers {
			out.Headers = append(out.Headers, kgo.RecordHeader{Key: *header[0], Value: decode(header[1])})
		}
		if one.Timestamp != nil {
			out.Timestamp = time.UnixMilli(*one.Timestamp)
		}
		client := choosing
		if one.Partition != nil {
			client, out.Partition = placing, *one.Partition
		}
		client.Produce(ctx, out, func(_ *kgo.Record, err error) { failures <- err })
	}
	for range records {
		if err := <-failures; err != nil {
			return err
		}
	}
	return nil
}

func (franz) consume(bootstrap, topic string, each func(record) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	admin, err := kadm.NewOptClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer admin.Close()
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return err
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	if err := ends.Error(); err != nil {
		return err
	}
	left := map[int32]int64{}
	from := map[int32]kgo.Offset{}
	ends.Each(func(end kadm.ListedOffset) {
		if start, found := starts.Lookup(topic, end.Partition); found && start.Offset < end.Offset {
			left[end.Partition] = end.Offset
			from[end.Partition] = kgo.NewOffset().AtStart()
		}
	})
	if len(left) == 0 {
		return nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	if err != nil {
		return err
	}
	defer client.Close()
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("partitions with their end offsets still to come: %v", left)
		}
		for _, failure := range fetches.Errors() {
			return fmt.Errorf("partition %d: %w", failure.Partition, failure.Err)
		}
		for _, in := range fetches.Records() {
			if err := each(franzRecord(in)); err != nil {
				return err
			}
			if in.Offset+1 >= left[in.Partition] {
				delete(left, in.Partition)
			}
		}
	}
	return nil
}

func franzRecord(in *kgo.Record) record {
	timestamp := in.Timestamp.UnixMilli()
	out := record{Partition: &in.Partition, Offset: in.Offset, Timestamp: &timestamp, Key: encode(in.Key), Value: encode(in.Value), Headers: [][2]*string{}}
	for _, header := range in.Headers {
		out.Headers = append(out.Headers, [2]*string{&header.Key, encode(header.Value)})
	}
	return out
}

func (franz) member(ctx context.Context, bootstrap, topic, group, strategy, instance string) error {
	owned := map[int32]bool{}
	change := func(with bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			for _, partition := range partitions[topic] {
				if with {
					owned[partition] = true
				} else {
					delete(owned, partition)
				}
			}
			say("owns", sorted(owned))
		}
	}
	balancer := kgo.RangeBalancer()
	if strategy == "cooperative-sticky" {
		balancer = kgo.CooperativeStickyBalancer()
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.Balancers(balancer),
		kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(change(true)),
		kgo.OnPartitionsRevoked(change(false)),
		kgo.OnPartitionsLost(change(false)),
	}
	if instance != "-" {
		options = append(options, kgo.InstanceID(instance))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachError(func(_ string, _ int32, err error) {
			if ctx.Err() == nil {
				say("error", err.Error())
			}
		})
		fetches.EachRecord(func(in *kgo.Record) { say("record", []int64{int64(in.Partition), in.Offset}) })
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			say("error", err.Error())
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	return nil
}

func sorted(set map[int32]bool) []int32 {
	return slices.Sorted(maps.Keys(set))
}
