package rules

import (
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// holderRows are the rows of the processes that hold rollouts, triggers or batches.
type holderRows struct{ tx *Tx }

// holderKept is how long a holder is kept that holds nothing and may or may not be dead.
const holderKept = 7 * 24 * time.Hour

// register makes this process known with its claim. The first time it also forgets holders that are
// gone.
func (rows holderRows) register() error {
	p := rows.tx.db.process
	added, err := rows.tx.change(
		"INSERT INTO holders (holder_id, pid, start_time, boot_id, pid_ns, opened_at) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
		rows.tx.db.holder, p.PID, p.StartTime, p.BootID, p.PIDNamespace, rows.tx.now)
	if err != nil || added == 0 {
		return err
	}
	idle := ` FROM holders h WHERE h.holder_id <> ? AND h.holder_id NOT IN (SELECT owner FROM rollouts WHERE owner IS NOT NULL)
		AND h.holder_id NOT IN (SELECT owner FROM triggers WHERE owner IS NOT NULL)
		AND h.holder_id NOT IN (SELECT owner FROM judge_batches WHERE owner IS NOT NULL)
		AND h.holder_id NOT IN (SELECT owner FROM notifications WHERE owner IS NOT NULL)`
	if err := rows.tx.Exec("DELETE FROM holders WHERE opened_at < ? AND holder_id IN (SELECT h.holder_id"+idle+")",
		rows.tx.after(-holderKept), rows.tx.db.holder); err != nil {
		return err
	}
	var dead []string
	if err := rows.tx.rows(func(r scanner) error { return appendDead(&dead, r) },
		SelectHolders+idle, rows.tx.db.holder); err != nil {
		return err
	}
	for _, id := range dead {
		if err := rows.tx.Exec("DELETE FROM holders WHERE holder_id = ?", id); err != nil {
			return err
		}
	}
	return nil
}

// dead returns, as a JSON array, the holders of rows in a table whose process is certainly gone.
func (rows holderRows) dead(table string) (string, error) {
	dead := []string{}
	if err := rows.tx.rows(func(r scanner) error { return appendDead(&dead, r) },
		selectOwners(table), rows.tx.db.holder); err != nil {
		return "", err
	}
	return string(marshal(dead).([]byte)), nil
}

// SelectHolders selects holders h and their processes.
const SelectHolders = "SELECT h.holder_id, h.pid, h.start_time, h.boot_id, h.pid_ns"

// selectOwners selects the other holders of rows in a table.
func selectOwners(table string) string {
	return SelectHolders + " FROM holders h WHERE h.holder_id IN (SELECT owner FROM " + table +
		" WHERE owner IS NOT NULL) AND h.holder_id <> ?"
}

func appendDead(dead *[]string, r scanner) error {
	var id string
	var p store.Process
	err := r.Scan(&id, &p.PID, &p.StartTime, &p.BootID, &p.PIDNamespace)
	if err == nil && p.IsDead() {
		*dead = append(*dead, id)
	}
	return err
}
