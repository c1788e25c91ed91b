"""The power cut: what a gateway wrote is recorded, and rebuilt as a disk would hold it if the power had gone.

recording.py   a gateway under strace with senders, killed once and stopped once; recorded.py is what runs there
trace.py       the recording as events: writes, syncs, renames, each with its beginning and its end
ground.py      the folder as it lies on disk after a cut: what was synced, and at random some of what was not
landing.py     the same of what a stream does to the disk
cuts.py        a whole run
recovery.py    a gateway that starts on such a folder, and what must then be true
"""
