package store

import (
	"context"
	"time"
)

// ParkedFor is how long a delivery that matches nothing is kept.
const ParkedFor = 7 * 24 * time.Hour

// ParkedMail reads the deliveries that have come before what they are for.
type ParkedMail interface {
	// Parked returns up to limit deliveries that are parked, the oldest first. One by source and item
	// key stays parked when triggers have taken it, because others may follow.
	Parked(ctx context.Context, limit int) ([]Delivered, error)
}
