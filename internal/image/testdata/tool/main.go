// Program tool is the only program in the images of the tests. It writes a number of bytes to a
// file, or waits for ever.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	switch os.Args[1] {
	case "write":
		n, err := strconv.Atoi(os.Args[3])
		if err == nil {
			err = os.WriteFile(os.Args[2], make([]byte, n), 0o600)
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	case "say":
		for i := range 100 {
			fmt.Println("line", i)
		}
		os.Exit(3)
	case "wait":
		if f, err := os.Create(os.Args[2]); err == nil {
			_ = f.Close()
		}
		time.Sleep(time.Hour)
	}
}
