package eval

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func money(x float64) *float64 { return &x }

func TestUsageIsSummedByModel(t *testing.T) {
	all := []Usage{
		{Model: "b", InputTokens: 1, OutputTokens: 2, Cost: money(0.1)},
		{Model: "a", InputTokens: 10, CachedInputTokens: 4, OutputTokens: 20},
		{Model: "b", InputTokens: 3, OutputTokens: 4, Cost: money(0.2), Unmetered: 1},
	}
	want := []Usage{
		{Model: "a", InputTokens: 10, CachedInputTokens: 4, OutputTokens: 20},
		{Model: "b", InputTokens: 4, OutputTokens: 6, Cost: money(0.3), Unmetered: 1},
	}
	if diff := cmp.Diff(want, MergeUsage(all...)); diff != "" {
		t.Error(diff)
	}
	total := Usage{InputTokens: 14, CachedInputTokens: 4, OutputTokens: 26, Cost: money(0.3), CostIncomplete: true, Unmetered: 1}
	if diff := cmp.Diff(&total, TotalUsage(all)); diff != "" {
		t.Error(diff)
	}
	if TotalUsage(nil) != nil || total.Tokens() != 40 || all[0].InputTokens != 1 {
		t.Error("nothing is something, or a usage was changed")
	}
}

func TestPrices(t *testing.T) {
	prices := Prices{
		"gpt-5-mini":  {Input: 0.25, CachedInput: money(0.025), Output: 2},
		"gpt-5*":      {Input: 1, Output: 10},
		"gpt-*":       {Input: 2, Output: 20},
		"*/claude-*4": {Input: 3, CachedInput: money(0.3), Output: 15},
		"free":        {},
	}
	for _, c := range []struct {
		used Usage
		want *float64
		part bool
	}{
		{Usage{Model: "gpt-5-mini", InputTokens: 1_000_000, CachedInputTokens: 400_000, OutputTokens: 500_000}, money(0.15 + 0.01 + 1), false},
		{Usage{Model: "gpt-5-mini-2025-08-07", InputTokens: 1_000_000, OutputTokens: 1}, money(1.00001), false},
		{Usage{Model: "gpt-4", InputTokens: 500_000}, money(1), false},
		{Usage{Model: "gpt-4", InputTokens: 500_000, CachedInputTokens: 1}, nil, false}, // no price of cached input
		{Usage{Model: "anthropic/claude-opus-4", OutputTokens: 1_000_000}, money(15), false},
		{Usage{Model: "anthropic/claude-opus-4.5", OutputTokens: 1_000_000}, nil, false},
		{Usage{Model: "free", InputTokens: 7}, money(0), false},
		{Usage{Model: "", InputTokens: 7}, nil, false},
		{Usage{Model: "unknown", InputTokens: 7, Cost: money(0.5)}, money(0.5), false}, // what it says itself counts
		{Usage{Model: "free", InputTokens: 7, Unmetered: 1}, money(0), true},
	} {
		got := prices.Priced(c.used)
		if diff := cmp.Diff(c.want, got.Cost); diff != "" || got.CostIncomplete != c.part {
			t.Errorf("%+v: incomplete %v, %s", c.used, got.CostIncomplete, diff)
		}
	}
	if _, ok := (Prices{}).Of("x"); ok {
		t.Error("a price where there is none")
	}
	if price, _ := (Prices{"a*": {Input: 1}, "*a": {Input: 2}}).Of("aa"); price.Input != 2 {
		t.Errorf("two patterns of one length: %+v", price)
	}
}
