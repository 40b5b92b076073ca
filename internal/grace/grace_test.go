package grace

import (
	"context"
	"testing"
	"time"
)

func TestOutlast(t *testing.T) {
	type key struct{}
	ctx, stop := context.WithCancel(context.WithValue(t.Context(), key{}, 1))
	long, endLong := Outlast(ctx, time.Hour)
	short, endShort := Outlast(ctx, time.Millisecond)
	defer endShort()
	if long.Err() != nil || short.Err() != nil || long.Value(key{}) != 1 {
		t.Error("it has ended before the stop, or lost a value")
	}
	stop()
	<-short.Done()
	if long.Err() != nil {
		t.Error("it has ended with the stop")
	}
	endLong()
	if long.Err() == nil {
		t.Error("it goes on after its end")
	}
}
