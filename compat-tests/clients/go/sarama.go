package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// sarama, with the protocol version of its default config. Its producer waits for acks=1 by default.
type saramaClient struct{}

func (saramaClient) create(bootstrap, topic string, partitions int32) error {
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, sarama.NewConfig())
	if err != nil {
		return err
	}
	defer admin.Close()
	// The default protocol version is older than "the broker's default replication factor" (-1).
	return admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false)
}

func (saramaClient) config(codec string, placing bool) (*sarama.Config, error) {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true // only so that the end is seen
	if placing {
		config.Producer.Partitioner = sarama.NewManualPartitioner
	}
	return config, config.Producer.Compression.UnmarshalText([]byte(codec))
}

// Records that name their partition need a partitioner that obeys; the others go through a producer with the default one.
func (s saramaClient) produce(bootstrap, topic, codec string, records []record) error {
	var placed, chosen []record
	for _, one := range records {
		if one.Partition != nil {
			placed = append(placed, one)
		} else {
			chosen = append(chosen, one)
		}
	}
	if err := s.produceWith(bootstrap, topic, codec, true, placed); err != nil {
		return err
	}
	return s.produceWith(bootstrap, topic, codec, false, chosen)
}

func (s saramaClient) produceWith(bootstrap, topic, codec string, placing bool, records []record) error {
	config, err := s.config(codec, placing)
	if err != nil {
		return err
	}
	producer, err := sarama.NewAsyncProducer([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	go func() {
		for _, one := range records {
			producer.Input() <- saramaMessage(topic, one)
		}
	}()
	timeout := time.After(wait)
	for range records {
		select {
		case <-producer.Successes():
		case failure := <-producer.Errors():
			return failure
		case <-timeout:
			return fmt.Errorf("records not acknowledged within %v", wait)
		}
	}
	return nil
}

func saramaMessage(topic string, one record) *sarama.ProducerMessage {
	out := &sarama.ProducerMessage{Topic: topic}
	// A nil Encoder is a null; an encoder of nil bytes would be an empty one.
	if one.Key != nil {
		out.Key = sarama.ByteEncoder(decode(one.Key))
	}
	if one.Value != nil {
		out.Value = sarama.ByteEncoder(decode(one.Value))
	}
	for _, header := range one.Headers {
		out.Headers = append(out.Headers, sarama.RecordHeader{Key: []byte(*header[0]), Value: decode(header[1])})
	}
	if one.Timestamp != nil {
		out.Timestamp = time.UnixMilli(*one.Timestamp)
	}
	if one.Partition != nil {
		out.Partition = *one.Partition
	}
	return out
}

func (saramaClient) consume(bootstrap, topic string, each func(record) error) error {
	config := sarama.NewConfig()
	config.Consumer.Return.Errors = true
	client, err := sarama.NewClient([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	defer consumer.Close()
	partitions, err := client.Partitions(topic)
	if err != nil {
		return err
	}
	timeout := time.After(wait)
	for _, partition := range partitions {
		start, err := client.GetOffset(topic, partition, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
		if err != nil {
			return err
		}
		if start == end {
			continue
		}
		if err := consumePartition(consumer, topic, partition, end, timeout, each); err != nil {
			return err
		}
	}
	return nil
}

func consumePartition(consumer sarama.Consumer, topic string, partition int32, end int64, timeout <-chan time.Time, each func(record) error) error {
	reader, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer reader.Close()
	for {
		select {
		case in := <-reader.Messages():
			if err := each(saramaRecord(in)); err != nil {
				return err
			}
			if in.Offset+1 >= end {
				return nil
			}
		case failure := <-reader.Errors():
			return failure
		case <-timeout:
			return fmt.Errorf("partition %d: end offset %d not reached", partition, end)
		}
	}
}

func saramaRecord(in *sarama.ConsumerMessage) record {
	timestamp := in.Timestamp.UnixMilli()
	out := record{Partition: &in.Partition, Offset: in.Offset, Timestamp: &timestamp, Key: encode(in.Key), Value: encode(in.Value), Headers: [][2]*string{}}
	for _, header := range in.Headers {
		name := string(header.Key)
		out.Headers = append(out.Headers, [2]*string{&name, encode(header.Value)})
	}
	return out
}

// Only eager strategies: sarama has no cooperative one.
func (saramaClient) member(ctx context.Context, bootstrap, topic, group, strategy, instance string) error {
	config := sarama.NewConfig()
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	if instance != "-" {
		config.Version = sarama.V2_3_0_0 // the first with static members
		config.Consumer.Group.InstanceId = instance
	}
	consumer, err := sarama.NewConsumerGroup([]string{bootstrap}, group, config)
	if err != nil {
		return err
	}
	go func() {
		for err := range consumer.Errors() {
			say("error", err.Error())
		}
	}()
	for ctx.Err() == nil {
		if err := consumer.Consume(ctx, []string{topic}, saramaMember{topic}); err != nil && ctx.Err() == nil {
			say("error", err.Error())
			time.Sleep(100 * time.Millisecond)
		}
	}
	return consumer.Close()
}

type saramaMember struct{ topic string }

func (m saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	owns := slices.Clone(session.Claims()[m.topic])
	slices.Sort(owns)
	if owns == nil {
		owns = []int32{}
	}
	say("owns", owns)
	return nil
}

func (m saramaMember) Cleanup(sarama.ConsumerGroupSession) error {
	say("owns", []int32{})
	return nil
}

func (m saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for in := range claim.Messages() {
		say("record", []int64{int64(in.Partition), in.Offset})
		session.MarkMessage(in, "")
		session.Commit()
	}
	return nil
}
