package rules

import (
	"cmp"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// lane is a queue of rollouts of one run that are equal for who may claim them when: they have the same
// agent, tags and state. There are few lanes, however many rollouts are in them.
type lane struct {
	run, agent, tags, state string
	priority                int
	// mostOfAgent is the limit of its agent, mostOfAll that of all agents, if there is one.
	mostOfAgent, mostOfAll sql.NullInt64
	// at is the place of its first rollout.
	at place
	// ahead are the next ones, as far as they were read, and last is the place of the last that was.
	ahead []next
	last  place
	empty bool
}

// place is where a rollout is in its lane.
type place struct{ runnableAt, ordinal int64 }

func (a place) compare(b place) int {
	return cmp.Or(cmp.Compare(a.runnableAt, b.runnableAt), cmp.Compare(a.ordinal, b.ordinal))
}

type next struct {
	id string
	at place
}

// starts reports whether an agent starts when a rollout of the lane is claimed.
func (l *lane) starts() bool { return !strings.Contains(evaluatorsOnly, "'"+l.state+"'") }

// evaluatorsOnly are the states in which a rollout is claimed for its evaluators.
const evaluatorsOnly = "('evaluating', 'scoring')"

// runsNow is the condition that a rollout occupies a place of those that limits count.
const runsNow = "owner IS NOT NULL AND state = 'running'"

// fits is the condition that a process with tags, a JSON array, has what a rollout asks for.
func fits(tags string) string {
	return "(tags = '' OR NOT EXISTS (SELECT 1 FROM json_each(tags) needed WHERE needed.value NOT IN (SELECT value FROM json_each(" +
		tags + "))))"
}

// room is the condition that no limit holds a runnable rollout back.
const room = "(state IN " + evaluatorsOnly + ` OR NOT EXISTS (SELECT 1 FROM limits WHERE kind = 'all' AND most <= (SELECT count(*) FROM rollouts WHERE ` + runsNow + `))
	AND agent NOT IN (SELECT name FROM limits WHERE kind = 'agent' AND most <= (SELECT count(*) FROM rollouts h WHERE ` + runsNow + ` AND h.agent = limits.name)))`

// selectLanes finds the first rollout of each lane by going from one to the next in their index. ?1 is
// now, ?2 what this process has, ?3 the run, if the lanes are those of one.
func selectLanes(ofRun bool) string {
	const columns = "o.rollout_id, o.run_id, o.agent, o.tags, o.state, o.runnable_at, o.ordinal"
	// SQLite searches by all columns of a comparison only if the values have no type of their own, and reads
	// what is equal in these columns: the largest runnable_at leads past that.
	first, after := "", "(o.run_id, o.agent, o.tags, o.state, o.runnable_at) > (l.run_id || '', l.agent || '', l.tags || '', l.state || '', 9223372036854775807)"
	if ofRun {
		first, after = " AND o.run_id = ?3", "o.run_id = l.run_id AND (o.agent, o.tags, o.state, o.runnable_at) > (l.agent || '', l.tags || '', l.state || '', 9223372036854775807)"
	}
	const order = " ORDER BY o.run_id, o.agent, o.tags, o.state, o.runnable_at, o.ordinal LIMIT 1"
	return fmt.Sprintf(`SELECT r.run_id, agent, tags, state, runnable_at, ordinal, priority,
		(SELECT most FROM limits WHERE kind = 'agent' AND name = agent), (SELECT most FROM limits WHERE kind = 'all')
	FROM (WITH RECURSIVE lanes AS (
			SELECT * FROM (SELECT %[1]s FROM rollouts o WHERE o.runnable_at IS NOT NULL%[2]s%[4]s) one
			UNION ALL SELECT %[1]s FROM lanes l JOIN rollouts o ON o.rollout_id =
				(SELECT o.rollout_id FROM rollouts o WHERE o.runnable_at IS NOT NULL AND %[3]s%[4]s))
		SELECT * FROM lanes) all_lanes JOIN runs r ON r.run_id = all_lanes.run_id
	WHERE runnable_at <= ?1 AND %[5]s`, columns, first, after, order, fits("?2"))
}

var (
	selectAllLanes   = selectLanes(false)
	selectLanesOfRun = selectLanes(true)
)

// nextInLanes finds rollouts that are runnable, in the order in which they are to be claimed.
func (s segments) nextInLanes(runID string, limit int, working string) (ids []string, err error) {
	query := selectAllLanes
	if runID != "" {
		query = selectLanesOfRun
	}
	var lanes []*lane
	if err := s.tx.rows(func(r scanner) error {
		l := &lane{last: place{-1, -1}}
		lanes = append(lanes, l)
		return r.Scan(&l.run, &l.agent, &l.tags, &l.state, &l.at.runnableAt, &l.at.ordinal, &l.priority,
			&l.mostOfAgent, &l.mostOfAll)
	}, query, s.tx.now, s.tx.db.tags, runID); err != nil || len(lanes) == 0 {
		return nil, err
	}
	used, err := s.occupied(lanes)
	if err != nil {
		return nil, err
	}
	for len(ids) < limit {
		l := used.first(lanes)
		if l == nil {
			break
		}
		if len(l.ahead) == 0 {
			if err := s.readAhead(l, (limit-len(ids))/len(lanes)+1, working); err != nil {
				return nil, err
			}
			continue
		}
		ids = append(ids, l.ahead[0].id)
		if l.ahead = l.ahead[1:]; len(l.ahead) > 0 {
			l.at = l.ahead[0].at
		}
		used.add(l.run, l.agent, 1, l.starts())
		s.tx.db.turns.took(l.run, l.agent)
	}
	return ids, nil
}

// readAhead reads the next rollouts of a lane.
func (s segments) readAhead(l *lane, n int, working string) error {
	if err := s.tx.rows(func(r scanner) error {
		var one next
		err := r.Scan(&one.id, &one.at.runnableAt, &one.at.ordinal)
		l.ahead, l.last = append(l.ahead, one), one.at
		return err
	}, `SELECT rollout_id, runnable_at, ordinal FROM rollouts WHERE runnable_at <= ?1 AND run_id = ?2 AND agent = ?3 AND tags = ?4 AND state = ?5
		AND (runnable_at, ordinal) > (?6, ?7) AND `+notBegun("?8")+` ORDER BY runnable_at, ordinal LIMIT ?9`,
		s.tx.now, l.run, l.agent, l.tags, l.state, l.last.runnableAt, l.last.ordinal, working, n); err != nil {
		return err
	}
	if l.empty = len(l.ahead) == 0; !l.empty {
		l.at = l.ahead[0].at
	}
	return nil
}

// occupied counts the agents that run, or will when what was chosen is claimed: all of them, and by
// run, by agent, and by agent of a run.
type occupied struct {
	all           int
	ofAgent       map[string]int
	ofRun         map[string]int
	ofAgentOfARun map[[2]string]int
	turns         *turns
}

// turns says when this process has claimed of a run last, and of an agent of a run: where equally
// many run of each, it is the turn of who had none for longest. It need not be kept, so no process
// writes it down.
type turns struct {
	mu    sync.Mutex
	count int
	last  map[[2]string]int
}

// keptTurns is how many of them are kept.
const keptTurns = 10_000

func (t *turns) took(run, agent string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.last) >= keptTurns || t.last == nil {
		t.last = map[[2]string]int{}
	}
	t.count++
	t.last[[2]string{run}], t.last[[2]string{run, agent}] = t.count, t.count
}

func (t *turns) of(key [2]string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[key]
}

// occupied counts, as far as that matters for a choice among the lanes.
func (s segments) occupied(lanes []*lane) (*occupied, error) {
	u := &occupied{ofRun: map[string]int{}, ofAgent: map[string]int{}, ofAgentOfARun: map[[2]string]int{}, turns: &s.tx.db.turns}
	if !slices.ContainsFunc(lanes, func(l *lane) bool {
		return l.run != lanes[0].run || l.mostOfAgent.Valid || l.mostOfAll.Valid
	}) {
		return u, nil
	}
	return u, s.tx.rows(func(r scanner) error {
		var run, agent string
		var n int
		err := r.Scan(&run, &agent, &n)
		u.add(run, agent, n, true)
		return err
	}, "SELECT run_id, agent, count(*) FROM rollouts WHERE "+runsNow+" GROUP BY run_id, agent")
}

// add counts n rollouts of which the agents run. What is claimed for its evaluators counts for its run
// alone, so that each run gets its turn.
func (u *occupied) add(run, agent string, n int, starts bool) {
	u.ofRun[run] += n
	if starts {
		u.all += n
		u.ofAgent[agent] += n
		u.ofAgentOfARun[[2]string{run, agent}] += n
	}
}

// first returns the lane whose turn it is, or nil if none has anything for which there is room.
func (u *occupied) first(lanes []*lane) (first *lane) {
	for _, l := range lanes {
		full := l.starts() && (l.mostOfAll.Valid && int64(u.all) >= l.mostOfAll.Int64 ||
			l.mostOfAgent.Valid && int64(u.ofAgent[l.agent]) >= l.mostOfAgent.Int64)
		if !l.empty && !full && (first == nil || u.compare(l, first) < 0) {
			first = l
		}
	}
	return first
}

// compare says which of two lanes goes first.
func (u *occupied) compare(a, b *lane) int {
	runsOfA, turnOfA := u.served(a)
	runsOfB, turnOfB := u.served(b)
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(runsOfA, runsOfB), cmp.Compare(turnOfA, turnOfB),
		a.at.compare(b.at), cmp.Compare(a.run, b.run), cmp.Compare(a.state, b.state))
}

// served returns how many agents run of what a lane shares its places with, and when that had its last
// turn. An agent with a limit of its own is shared by what runs of it, whatever else a run has running.
func (u *occupied) served(l *lane) (running, turn int) {
	if l.mostOfAgent.Valid && l.starts() {
		key := [2]string{l.run, l.agent}
		return u.ofAgentOfARun[key], u.turns.of(key)
	}
	return u.ofRun[l.run], u.turns.of([2]string{l.run})
}
