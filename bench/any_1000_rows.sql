UPDATE rows SET n = n + 1;
UPDATE rows SET n = n + 1;
