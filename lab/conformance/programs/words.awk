{ for (i = 1; i < NF; i++) count[$i]++; sum += $NF; length_sum += length($0) }
END {
    for (word in count) print count[word], word > "counts"
    close("counts")
    print NR, sum, length_sum
    while (("sort -k1,1nr -k2 counts" | getline line) > 0 && n++ < 5) print line
}
