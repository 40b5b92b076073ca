package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/input"
)

// Reward is the worth of an attempt according to a test script.
type Reward struct {
	Value float64 `json:"value"`
	// Name is the name of its number in reward.json, empty for "reward". It is among the Metrics then.
	Name string `json:"name,omitempty"`
	// Metrics are the other numbers of reward.json.
	Metrics map[string]float64 `json:"metrics,omitempty"`
	// Details is an object with all else that reward.json has.
	Details json.RawMessage `json:"details,omitempty"`
	// Suspicious is the result of [Suspicious] for a reward of 0.
	Suspicious string `json:"suspicious,omitempty"`
}

// ErrNoReward is returned if a test script has left no reward.
var ErrNoReward = errors.New("the test script wrote neither reward.txt nor reward.json into /logs/verifier")

const (
	rewardText = "reward.txt"
	rewardJSON = "reward.json"
	rewardKey  = "reward"
	// maxReward bounds what a test script may write.
	maxReward = 1 << 20
	// sameReward is how far apart the rewards of both files may be.
	sameReward = 1e-9
)

// ReadReward reads the reward that a test script left in dir, the verifier's log folder. Harbor
// reads reward.txt first and benchflow reward.json, so if both are there they must agree. within is
// the lowest and the highest reward; the zero value means 0 to 1.
//
// The files were written by code that nobody trusts: links are not followed, and only regular files
// are read.
func ReadReward(dir string, within [2]float64) (Reward, error) {
	if within == [2]float64{} {
		within = [2]float64{0, 1}
	}
	text, err := readUntrusted(dir, rewardText)
	if err != nil {
		return Reward{}, err
	}
	document, err := readUntrusted(dir, rewardJSON)
	if err != nil {
		return Reward{}, err
	}
	if text == nil && document == nil {
		return Reward{}, ErrNoReward
	}
	var reward Reward
	if document != nil {
		if reward, err = parseReward(document); err != nil {
			return Reward{}, err
		}
	}
	if text != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
		value, ok := finite(strings.TrimSpace(first))
		if !ok {
			return Reward{}, fmt.Errorf("%s: expected a finite number, got %q", rewardText, shorten(first))
		}
		if document != nil && math.Abs(value-reward.Value) > sameReward {
			return Reward{}, fmt.Errorf("%s and %s disagree: %v and %v", rewardText, rewardJSON, value, reward.Value)
		}
		if document == nil {
			reward.Value = value
		}
	}
	if reward.Value < within[0] || reward.Value > within[1] {
		return Reward{}, fmt.Errorf(
			"the reward %v is not in the range from %v to %v; verifier.reward_range can widen it",
			reward.Value, within[0], within[1])
	}
	return reward, nil
}

// parseReward reads reward.json: an object whose numbers are the reward and metrics. In an object
// without "reward" a single number is the reward.
func parseReward(data []byte) (Reward, error) {
	root, err := input.ParseJSON(rewardJSON, data)
	if err != nil {
		return Reward{}, err
	}
	if root.Kind != input.Object {
		return Reward{}, fmt.Errorf("%s: expected an object such as {\"reward\": 1}, got %s", rewardJSON, root.Kind)
	}
	numbers := map[string]float64{}
	details := &input.Node{Kind: input.Object}
	for _, m := range root.Members {
		switch {
		case m.Value.Kind == input.Number:
			value, ok := finite(m.Value.Text)
			if !ok {
				return Reward{}, fmt.Errorf("%s: %s: expected a finite number, got %s",
					rewardJSON, shorten(m.Key), shorten(m.Value.Text))
			}
			numbers[m.Key] = value
		case m.Key == rewardKey:
			return Reward{}, fmt.Errorf("%s: reward: expected a number, got %s", rewardJSON, m.Value.Kind)
		default:
			details.Members = append(details.Members, m)
		}
	}
	name := rewardKey
	if _, ok := numbers[name]; !ok {
		names := slices.Sorted(maps.Keys(numbers))
		if len(names) != 1 {
			return Reward{}, fmt.Errorf(
				"%s: there is no \"reward\", and of %d other numbers none can be told to be it",
				rewardJSON, len(names))
		}
		name = names[0]
	}
	reward := Reward{Value: numbers[name]}
	if name != rewardKey {
		reward.Name = name
	}
	delete(numbers, rewardKey) // a number of another name stays a metric as well
	if len(numbers) > 0 {
		reward.Metrics = numbers
	}
	if len(details.Members) > 0 {
		reward.Details = details.JSON()
	}
	return reward, nil
}

// readUntrusted reads a small regular file in dir, without following links; nil if there is none.
func readUntrusted(dir, name string) ([]byte, error) {
	// O_NONBLOCK, because opening a FIFO would wait for its writer.
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK
	folder, err := unix.Open(dir, flags|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: the verifier's log folder cannot be opened: %w", dir, err)
	}
	defer unix.Close(folder) //nolint:errcheck // it was only read
	fd, err := unix.Openat(folder, name, flags, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s: it is a link, which is not followed", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be opened: %w", name, err)
	}
	file := os.NewFile(uintptr(fd), filepath.Join(dir, name))
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: it is not a regular file", name)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxReward+1))
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read: %w", name, err)
	}
	if len(data) > maxReward {
		return nil, fmt.Errorf("%s: it is larger than %d bytes", name, maxReward)
	}
	if len(strings.TrimSpace(string(data))) == 0 {
		return nil, fmt.Errorf("%s: it is empty", name)
	}
	return data, nil
}

// shorten keeps text from an untrusted file from filling a message.
func shorten(s string) string {
	if runes := []rune(s); len(runes) > 60 {
		return string(runes[:60]) + "…"
	}
	return s
}

// The values of multi_step_reward_strategy.
const (
	StrategyMean  = "mean"
	StrategyFinal = "final"
)

// CombineRewards returns the reward of a task of several steps, of those that were verified: their
// mean, for each key, where a step that lacks a metric counts as 0 for it; or with the strategy
// "final" the last one.
func CombineRewards(strategy string, steps []Reward) Reward {
	if len(steps) == 0 {
		return Reward{}
	}
	if strategy == StrategyFinal {
		return steps[len(steps)-1]
	}
	var mean Reward
	sums := map[string]float64{}
	mean.Name = steps[0].Name
	for _, s := range steps {
		mean.Value += s.Value
		if s.Name != mean.Name {
			mean.Name = ""
		}
		for name, v := range s.Metrics {
			sums[name] += v
		}
	}
	n := float64(len(steps))
	mean.Value /= n
	for name := range sums {
		sums[name] /= n
	}
	if len(sums) > 0 {
		mean.Metrics = sums
	}
	return mean
}

// MinReward is the least that a step must reach for the next one to be tried: the reward itself
// under "reward", and metrics.
type MinReward map[string]float64

// Unmet returns the threshold that a step has missed, or "". A nil reward, of tests that left none,
// misses all, and a metric that is missing misses its threshold.
func (m MinReward) Unmet(r *Reward) string {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		value, ok := math.Inf(-1), false
		if r != nil {
			if value, ok = r.Metrics[name]; name == rewardKey {
				value, ok = r.Value, true
			}
		}
		switch {
		case !ok:
			return fmt.Sprintf("%s is missing, and must be at least %s", name, strconv.FormatFloat(m[name], 'g', -1, 64))
		case value < m[name]:
			return fmt.Sprintf("%s is %v, and must be at least %v", name, value, m[name])
		}
	}
	return ""
}
