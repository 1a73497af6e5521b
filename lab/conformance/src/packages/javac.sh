# The JDK's compiler on three packages of the JDK's own sources, twice: the classes are equal.
need javac default-jdk-headless
need unzip unzip
home=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")
if ! [ -e "$home/lib/src.zip" ]; then
	echo "SKIP the JDK's sources are not installed (package openjdk-17-source)"
	exit 0
fi
unzip -q "$home/lib/src.zip" \
	'java.base/java/util/regex/*' 'java.base/java/util/zip/*' 'java.base/java/math/*'
find java.base -name '*.java' | sort >files
for out in one two; do
	javac -nowarn -XDignore.symbol.file --patch-module java.base=java.base -d $out @files 2>log
done
diff -r one two
