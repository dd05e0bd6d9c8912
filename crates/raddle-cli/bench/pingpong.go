// Two goroutines pass a byte through two channels.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

func main() {
	rounds := 1000000
	if len(os.Args) > 1 {
		rounds, _ = strconv.Atoi(os.Args[1])
	}
	there, back := make(chan byte), make(chan byte)
	var done sync.WaitGroup
	done.Add(2)
	start := time.Now()
	go func() {
		defer done.Done()
		for i := 0; i < rounds; i++ {
			there <- 1
			<-back
		}
	}()
	go func() {
		defer done.Done()
		for i := 0; i < rounds; i++ {
			back <- <-there
		}
	}()
	done.Wait()
	elapsed := float64(time.Since(start).Nanoseconds())
	fmt.Printf("METRIC hand-off %.1f ns\n", elapsed/(2*float64(rounds)))
}
