package postgres

import (
	"context"
	"fmt"
	"time"
)

// slack is how far the clocks of a machine and of the server may be apart without being said.
const slack = 5 * time.Second

// About implements rules.Server.
func (d *db) About(ctx context.Context) (string, error) {
	var version, names string
	var standbys, forgotten int
	err := d.read.QueryRowContext(ctx, `SELECT current_setting('server_version'), current_setting('synchronous_standby_names'),
		(SELECT count(*) FROM pg_stat_replication), (SELECT count(*) FROM rollouts WHERE owner IS NOT NULL AND lease_until < ?)`,
		d.now().Add(-time.Minute).UnixMicro()).Scan(&version, &names, &standbys, &forgotten)
	if err != nil {
		return "", err
	}
	about := fmt.Sprintf("PostgreSQL %s, tables of version %d", version, schemaVersion)
	switch {
	case names != "":
		about += ", synchronous standbys: " + names
	case standbys > 0:
		about += ", standbys that may lose what was committed last: none is synchronous"
	}
	if ahead := time.Duration(d.ahead.Load()).Round(time.Second); ahead.Abs() > slack {
		about += fmt.Sprintf(", a clock that is %s ahead of this machine's (leases are by that of the server)", ahead)
	}
	if forgotten > 0 {
		about += fmt.Sprintf(", rollouts whose holder has not renewed its lease for more than a minute, and that nobody takes over: %d", forgotten)
	}
	return about, nil
}
