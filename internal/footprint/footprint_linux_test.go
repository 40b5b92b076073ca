package footprint

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// What was mapped of the program's file is less afterwards, and the program still runs.
func TestGiveBack(t *testing.T) {
	before := fileResident(t)
	GiveBack()
	if after := fileResident(t); after >= before {
		t.Errorf("%d kB of files are resident, and were %d before", after, before)
	}
}

func fileResident(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	found := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Skip("this kernel does not say what is resident of files")
	}
	kb, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kb
}
