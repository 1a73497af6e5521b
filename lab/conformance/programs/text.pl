open my $in, '<', 'words' or die $!;
my (%count, $long);
while (<$in>) {
    for my $word (/([a-z]+)/g) { $count{$word}++; $long++ if $word =~ /^(\w+)\1$/ }
}
my @ordered = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
open my $out, '>', 'report' or die $!;
printf $out "%6d %s\n", $count{$_}, $_ for @ordered[0 .. 99];
close $out;
my $pid = fork // die;
if (!$pid) { select undef, undef, undef, 0.2; exit 9 }
local $SIG{ALRM} = sub { $long += 1000 };
waitpid $pid, 0;
print "child ", $? >> 8, "\n";
alarm 1;
sleep 20;
print "$long ", scalar(keys %count), "\n";
