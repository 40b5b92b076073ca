package tasks

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReadReward(t *testing.T) {
	for _, v := range []struct {
		name, text, document string
		within               [2]float64
		want                 Reward
		wrong                string
	}{
		{name: "text", text: " 0.5\n", want: Reward{Value: 0.5}},
		{name: "first line of the text", text: "1\nall passed\n", want: Reward{Value: 1}},
		{name: "JSON", document: `{"reward": 0.25}`, want: Reward{Value: 0.25}},
		{name: "metrics and details", document: `{"reward": 1, "tests_total": 12, "items": [{"a": 1}], "reason": "x", "ok": true, "none": null}`,
			want: Reward{Value: 1, Metrics: map[string]float64{"tests_total": 12}, Details: []byte(`{"items":[{"a":1}],"reason":"x","ok":true,"none":null}`)}},
		{name: "one number of another name", document: `{"accuracy": 0.5}`, want: Reward{Value: 0.5, Name: "accuracy", Metrics: map[string]float64{"accuracy": 0.5}}},
		{name: "both agree", text: "0.30000000000000004", document: `{"reward": 0.3}`, want: Reward{Value: 0.3}},
		{name: "both disagree", text: "1", document: `{"reward": 0}`, wrong: "reward.txt and reward.json disagree: 1 and 0"},
		{name: "range", text: "-1", within: [2]float64{-1, 2}, want: Reward{Value: -1}},
		{name: "below", text: "-0.1", wrong: "the reward -0.1 is not in the range from 0 to 1"},
		{name: "above", document: `{"reward": 1.5}`, wrong: "the reward 1.5 is not in the range from 0 to 1; verifier.reward_range can widen it"},
		{name: "bool", document: `{"reward": true}`, wrong: "reward.json: reward: expected a number, got a boolean"},
		{name: "string", document: `{"reward": "1"}`, wrong: "reward.json: reward: expected a number, got a string"},
		{name: "null", document: `{"reward": null, "a": 1}`, wrong: "reward.json: reward: expected a number, got null"},
		{name: "NaN in the text", text: "nan", wrong: `reward.txt: expected a finite number, got "nan"`},
		{name: "infinite", text: "inf", wrong: "reward.txt: expected a finite number"},
		{name: "true in the text", text: "true", wrong: "reward.txt: expected a finite number"},
		{name: "too large", document: `{"reward": 1e999}`, wrong: "reward.json: reward: expected a finite number, got 1e999"},
		{name: "NaN as Python writes it", document: `{"reward": NaN}`, wrong: "reward.json:1:12: not valid JSON"},
		{name: "a list", document: `[1]`, wrong: "reward.json: expected an object"},
		{name: "twice", document: `{"reward": 1, "reward": 0}`, wrong: "reward.json:1:15: reward: the key is given twice"},
		{name: "several numbers", document: `{"a": 1, "b": 0}`, wrong: `reward.json: there is no "reward", and of 2 other numbers none`},
		{name: "no number", document: `{"a": "b"}`, wrong: `reward.json: there is no "reward"`},
		{name: "empty text", text: " \n", wrong: "reward.txt: it is empty"},
		{name: "empty JSON beside a text", text: "1", document: " ", wrong: "reward.json: it is empty"},
		{name: "much", text: strings.Repeat("1", maxReward+1), wrong: "reward.txt: it is larger than"},
		{name: "a long line", text: strings.Repeat("x", 1000), wrong: `reward.txt: expected a finite number, got "` + strings.Repeat("x", 60) + `…"`},
	} {
		t.Run(v.name, func(t *testing.T) {
			dir := t.TempDir()
			if v.text != "" {
				write(t, dir, "reward.txt", v.text)
			}
			if v.document != "" {
				write(t, dir, "reward.json", v.document)
			}
			got, err := ReadReward(dir, v.within)
			if v.wrong != "" {
				if err == nil || !strings.HasPrefix(err.Error(), v.wrong) {
					t.Errorf("got %v, %v, want %s…", got, err, v.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "reward", got, v.want)
		})
	}
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		if _, err := ReadReward(dir, [2]float64{}); !errors.Is(err, ErrNoReward) {
			t.Errorf("got %v", err)
		}
	}
}

// Given log files that lead elsewhere or never end, when the reward is read, then they are refused
// without being followed.
func TestRewardOfUntrustedFiles(t *testing.T) {
	elsewhere := write(t, t.TempDir(), "reward.txt", "1")
	for name, plant := range map[string]func(path string) error{
		"link":   func(path string) error { return os.Symlink(elsewhere, path) },
		"FIFO":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		for _, file := range []string{"reward.txt", "reward.json"} {
			dir := t.TempDir()
			if err := plant(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
			if got, err := ReadReward(dir, [2]float64{}); err == nil || errors.Is(err, ErrNoReward) || !strings.HasPrefix(err.Error(), file+": it is ") {
				t.Errorf("%s in place of %s: %v, %v", name, file, got, err)
			}
		}
	}
	link := filepath.Join(t.TempDir(), "verifier")
	if err := os.Symlink(filepath.Dir(elsewhere), link); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadReward(link, [2]float64{}); err == nil {
		t.Errorf("the folder is a link: %v", got)
	}
}

func TestCombineRewards(t *testing.T) {
	steps := []Reward{
		{Value: 1, Metrics: map[string]float64{"a": 1, "b": 3}},
		{Value: 0.5, Metrics: map[string]float64{"a": 0.5}, Details: []byte(`{}`)},
		{Value: 0},
	}
	mean := Reward{Value: 0.5, Metrics: map[string]float64{"a": 0.5, "b": 1}}
	equal(t, "mean", CombineRewards(StrategyMean, steps), mean)
	equal(t, "default", CombineRewards("", steps), mean)
	equal(t, "final", CombineRewards(StrategyFinal, steps[:2]), steps[1])
	equal(t, "one", CombineRewards(StrategyMean, []Reward{{Value: 0.3}}), Reward{Value: 0.3})
	named := []Reward{{Value: 1, Name: "a", Metrics: map[string]float64{"a": 1}}, {Value: 0, Name: "a", Metrics: map[string]float64{"a": 0}}}
	equal(t, "of another name", CombineRewards(StrategyMean, named), Reward{Value: 0.5, Name: "a", Metrics: map[string]float64{"a": 0.5}})
	equal(t, "of different names", CombineRewards(StrategyMean, append(named, Reward{Value: 0.5})).Name, "")
	equal(t, "none", CombineRewards(StrategyMean, nil), Reward{})
}

func TestMinReward(t *testing.T) {
	reward := &Reward{Value: 0.5, Metrics: map[string]float64{"style": 0.25}}
	for _, v := range []struct {
		gate   MinReward
		reward *Reward
		want   string
	}{
		{nil, nil, ""},
		{MinReward{"reward": 0.5}, reward, ""},
		{MinReward{"reward": 0.6}, reward, "reward is 0.5, and must be at least 0.6"},
		{MinReward{"reward": 0.5, "style": 0.25}, reward, ""},
		{MinReward{"reward": 0.5, "style": 0.5}, reward, "style is 0.25, and must be at least 0.5"},
		{MinReward{"speed": -100}, reward, "speed is missing, and must be at least -100"},
		{MinReward{"reward": 0}, nil, "reward is missing, and must be at least 0"},
	} {
		equal(t, "unmet", v.gate.Unmet(v.reward), v.want)
	}
}
