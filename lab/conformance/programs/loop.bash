for ((i = 1; i < 160000; i++)); do ((s = (s * 31 + i) % 1000003)); done; echo $s
while read -r number; do ((t = (t + number * 7) % 1000003)); done < numbers; echo $t
for name in one two three; do echo "$name $t" >> "$name.txt"; done; cat *.txt
