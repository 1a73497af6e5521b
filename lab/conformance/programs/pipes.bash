for round in 1 2 3; do
    cut -d' ' -f1 words | sort | uniq -c | sort -k1,1nr -k2 | head -12 > top$round
    sum=$(tr -cd 'a-e\n' < words | wc -c); echo "round $round $sum $(head -1 top$round)"
done
trap 'echo the trap ran' EXIT
(exit 5) || echo "a subshell gave $?"
sleep 0.2 & wait $!; echo "a job gave $?"
